// The page of sweeps at a service: a table of all, and for each its trials and the pictures of its report.

import { get } from "../api.js";
import { Banner, sentence } from "../banner.js";
import { make, makeSvg, makeTable, scrollable, setText } from "../dom.js";
import { downloadLink, pathOf } from "../download.js";
import { Refreshing } from "../refreshing.js";
import { badge } from "../status.js";
import { NOTHING, count, duration, figure, plural, timeAgo } from "../words.js";

const REFRESHED_EVERY_SECONDS = 5;
const MOST_JOBS = 500;
const LIST = [["Sweep"], ["Status", "bare"], ["Progress", "bare"], ["Best", ""], ["Objective", ""], ["Begun", "number"]];
const ELSEWHERE = [["Sweep"], ["Jobs", "number"], ["Statuses", ""]];
// The signs of states: those of jobs that they are most like.
const LIKE = {
  finished: "succeeded", complete: "succeeded", running: "running", paused: "preempted", pruned: "cancelled",
  failed: "failed",
};
const SHAPES = { curve: "M1,6h18", dot: "M10,6h0", cross: "M6,2l8,8m-8,0l8,-8" };

const quiet = (text) => make("span", { class: "quiet" }, text);
const pageOfJob = (runId) => `#/jobs/${encodeURIComponent(runId)}`;
const jobsOf = (sweepId) => `#/jobs?${new URLSearchParams({ label: `sweep=${sweepId}` })}`;

const stateBadge = (state, like = LIKE[state]) => {
  const node = badge({ status: like ?? "lost" });
  node.lastChild.textContent = state;
  return node;
};
// A sweep has failed, as its command says, if no trial is complete when all have ended.
const sweepBadge = ({ status, counts }) => stateBadge(
  status, status === "finished" && !counts.complete ? "failed" : LIKE[status]);

const style = () => {
  if (document.head.querySelector("[href^='assets/sweeps/']")) return;
  for (const name of ["page.css", "pictures.css"]) {
    document.head.append(make("link", { rel: "stylesheet", href: `assets/sweeps/${name}` }));
  }
};

const endedOf = (sweep) => sweep.counts.complete + sweep.counts.pruned + sweep.counts.failed;
const countsOf = (sweep) => Object.entries(sweep.counts).filter(([, many]) => many)
  .map(([state, many]) => `${count(many)} ${state}`).join(", ");

const progressOf = (sweep) => {
  const ended = endedOf(sweep), told = `${count(ended)} of ${plural(sweep.max_trials, "trial")}`;
  return make("div", { class: "progress" },
    make("span", { class: "words" }, make("span", {}, told)),
    make("progress", { max: Math.max(1, sweep.max_trials), value: ended, "aria-label": `Progress of ${sweep.sweep_id}` }),
    make("span", { class: "quiet" }, countsOf(sweep)));
};

const bestOf = (sweep) => {
  if (!sweep.best.length) return quiet(NOTHING);
  if (sweep.objectives.length > 1) return `trials ${sweep.best.map((one) => one.number).join(", ")}`;
  const [{ number, objective }] = sweep.best;
  return `${figure(objective[sweep.objectives[0].metric])} by trial ${number}`;
};

const objectiveOf = (sweep) => sweep.objectives.map(({ metric, mode }) => `${mode === "min" ? "minimize" : "maximize"} ${metric}`)
  .join("; ");

// Refreshed while it is looked at; `show` is given what `ask(signal)` has found.
class RefreshedPage {
  constructor(title) {
    this.title = title;
    this.heading = make("h1", { tabindex: "-1" }, title);
    this.banner = new Banner();
    this.room = make("div");
    this.refreshing = new Refreshing((signal) => this.refresh(signal));
    style();
  }

  open() { this.refreshing.now(); }
  close() { this.refreshing.close(); }

  async refresh(signal) {
    try {
      const found = await this.ask(signal);
      this.banner.clear();
      const told = JSON.stringify(found);
      if (told !== this.told) this.show(found);
      this.told = told;
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.banner.show(sentence(error.message), () => this.refreshing.now());
      return Math.max(error.retryAfter ?? 0, REFRESHED_EVERY_SECONDS);
    }
    return REFRESHED_EVERY_SECONDS;
  }
}

class SweepsPage extends RefreshedPage {
  constructor() {
    super("Sweeps");
    this.node = make("div", {},
      make("div", { class: "top" }, this.heading),
      make("p", { class: "lead" }, "Searches for hyperparameters, whose trials are runs."),
      this.banner.node, this.room);
  }

  async ask(signal) {
    const [{ sweeps, unreadable }, { jobs }] = await Promise.all([
      get("v1/sweeps", { signal }), get(`v1/jobs?limit=${MOST_JOBS}`, { signal }),
    ]);
    return { sweeps, unreadable, elsewhere: this.elsewhere(jobs, new Set(sweeps.map((one) => one.sweep_id))) };
  }

  // Sweeps that a driver at another machine has sent here: by the labels of their jobs.
  elsewhere(jobs, known) {
    const found = new Map();
    for (const { labels, status } of jobs) {
      if (!labels.sweep || labels.trial === undefined || known.has(labels.sweep)) continue;
      const statuses = found.get(labels.sweep) ?? new Map();
      found.set(labels.sweep, statuses.set(status, (statuses.get(status) ?? 0) + 1));
    }
    return [...found].map(([name, statuses]) => [name, [...statuses]]);
  }

  show({ sweeps, unreadable, elsewhere }) {
    const rows = sweeps.map((one) => [
      make("a", { href: `#/sweeps/${encodeURIComponent(one.sweep_id)}` }, one.sweep_id),
      sweepBadge(one), progressOf(one), bestOf(one), objectiveOf(one), timeAgo(one.started_ms),
    ]);
    const table = makeTable("Sweeps, those begun last first", LIST, rows, { class: "jobs blocks" });
    this.room.replaceChildren(
      make("section", { class: "card flush", "aria-label": "All sweeps" },
        rows.length ? scrollable("All sweeps", table) : make("p", { class: "empty" }, "There is no sweep here yet.")),
      ...this.driven(elsewhere), ...this.broken(unreadable));
  }

  driven(elsewhere) {
    if (!elsewhere.length) return [];
    const rows = elsewhere.map(([name, statuses]) => [
      make("a", { href: jobsOf(name) }, name),
      count(statuses.reduce((sum, [, many]) => sum + many, 0)),
      statuses.map(([status, many]) => `${count(many)} ${status}`).join(", "),
    ]);
    return [make("section", { class: "card", "aria-label": "Driven elsewhere" },
      make("h2", {}, "Driven elsewhere"),
      make("p", { class: "note" }, `By the labels of the newest ${count(MOST_JOBS)} jobs; their trials and values are where they are driven.`),
      scrollable("Driven elsewhere", makeTable("Sweeps that are driven elsewhere", ELSEWHERE, rows)))];
  }

  broken(unreadable) {
    if (!unreadable.length) return [];
    const rows = unreadable.map((one) => [one.sweep_id, one.error]);
    const table = makeTable("Sweeps that cannot be read", [["Sweep"], ["What is wrong", ""]], rows);
    return [make("section", { class: "card alarming", "aria-label": "Unreadable" },
      make("h2", {}, "Cannot be read"), scrollable("Sweeps that cannot be read", table))];
  }
}

const sample = ([look, words]) => make("li", {},
  makeSvg("svg", { class: "sample", viewBox: "0 0 20 12", "aria-hidden": "true" },
    makeSvg("path", { class: look, d: SHAPES[look.split(" ")[0]] })), ` ${words}`);

const pictureOf = (one) => {
  const marks = one.marks.map(({ look, d, title, trial }) => makeSvg("path", { class: look, d, "data-trial": trial },
    ...(title ? [makeSvg("title", {}, title)] : [])));
  const labels = one.labels.map(({ text, x, y, anchor }) => makeSvg("text", { x, y, "text-anchor": anchor }, text));
  const wide = one.width > 960 ? " wide" : "";
  const svg = makeSvg("svg", {
    class: `trials${wide}`, viewBox: `0 0 ${one.width} ${one.height}`, width: one.width, role: "img",
    "aria-label": `${one.title}. ${one.description}`,
  }, ...marks, ...labels);
  return make("figure", { class: "plot large" },
    make("figcaption", {}, make("h3", {}, one.title), make("ul", { class: "legend" }, ...one.legend.map(sample))),
    scrollable(one.title, svg));
};

const importanceOf = (one) => {
  if (one.why_not) return make("p", {}, `Of ${one.metric}: not known. ${one.why_not}`);
  const rows = Object.entries(one.shares).map(([pointer, share]) => [
    make("code", {}, pointer), `${Math.round(100 * share)} %`,
    make("progress", { max: 1, value: share, "aria-hidden": "true" }),
  ]);
  const table = makeTable(`Importance for ${one.metric}`, [["Parameter"], ["Share", "number"], ["", "share"]], rows);
  return make("div", {}, scrollable(`Importance for ${one.metric}`, table),
    make("p", { class: "note" }, `By PED-ANOVA, from the best ${one.best} of ${one.complete} complete trials.`));
};

const valueOf = (value) => {
  if (value === undefined) return quiet(NOTHING);
  if (typeof value === "number") return figure(value);
  return typeof value === "string" ? value : JSON.stringify(value);
};

class SweepPage extends RefreshedPage {
  constructor(sweepId) {
    super(sweepId);
    this.sweepId = sweepId;
    this.status = make("span");
    const problem = (error) => this.banner.show(sentence(error.message));
    const report = downloadLink(pathOf("v1/sweeps", sweepId, "report"), `${sweepId}.html`, problem);
    report.classList.add("button");
    setText(report, "Download the report");
    this.heading.replaceChildren(make("span", { class: "name" }, sweepId));
    this.node = make("div", {},
      make("div", { class: "top" },
        make("p", { class: "crumb" }, make("a", { href: "#/sweeps" }, "All sweeps")),
        this.heading, this.status, make("div", { class: "end" }, report)),
      this.banner.node, this.room);
  }

  async ask(signal) {
    const path = pathOf("v1/sweeps", this.sweepId);
    const labelled = new URLSearchParams({ label: `sweep=${this.sweepId}`, limit: MOST_JOBS });
    const [sweep, figures, { jobs }] = await Promise.all([
      get(path, { signal }), get(`${path}/figures`, { signal }), get(`v1/jobs?${labelled}`, { signal }),
    ]);
    sweep.driven_ms = Math.floor(sweep.driven_ms / 1000) * 1000;
    return { sweep, figures, jobs: jobs.map((job) => job.run_id) };
  }

  show({ sweep, figures, jobs }) {
    this.status.replaceChildren(sweepBadge(sweep));
    this.room.replaceChildren(
      make("section", { class: "card", "aria-label": "Summary" }, make("div", { class: "going" }, progressOf(sweep)),
        make("dl", {}, ...this.facts(sweep))),
      ...this.pictures(sweep.objectives.length > 1 ? "Trade-offs" : "History", figures.history),
      make("section", { class: "card flush", "aria-label": "Trials" }, this.trials(sweep, new Set(jobs))),
      ...this.pictures("Parameters", figures.parallel),
      make("section", { class: "card" }, make("h2", {}, "Importance"), ...figures.importances.map(importanceOf)),
      ...this.pictures("Curves", figures.curves));
  }

  facts(sweep) {
    const facts = [
      ["Objective", objectiveOf(sweep)], ["Best", bestOf(sweep)], ["Time of drivers", duration(sweep.driven_ms / 1000)],
      ["Begun", timeAgo(sweep.started_ms)], ["Why it ended", sweep.reason],
    ];
    return facts.filter(([, value]) => value).map(([name, value]) => make("div", {}, make("dt", {}, name),
      make("dd", {}, value)));
  }

  pictures(title, figures) {
    if (!figures.length) return [];
    return [make("section", { class: "card" }, make("h2", {}, title), ...figures.map(pictureOf))];
  }

  trials(sweep, jobs) {
    if (!sweep.trials.length) return make("p", { class: "empty" }, "No trial has begun yet.");
    const metrics = sweep.objectives.map((one) => one.metric), best = new Set(sweep.best.map((one) => one.number));
    const pointers = [...new Set(sweep.trials.flatMap((one) => Object.keys(one.values)))];
    const come = sweep.trials.some((one) => one.parent !== null);  // from the checkpoint of another
    const columns = [
      ["Trial"], ["State", "bare"], ...metrics.map((name) => [name, "number"]),
      ...pointers.map((pointer) => [pointer.split("/").pop(), "number"]), ...(come ? [["From", "number"]] : []), ["Step", "number"], ["Run", ""], ["Reason", ""],
    ];
    const rows = [...sweep.trials].reverse().map((one) => [
      [String(one.number), best.has(one.number) ? make("span", { class: "tag after" }, "best") : null],
      stateBadge(one.state),
      ...metrics.map((name) => (name in one.objective ? figure(one.objective[name]) : quiet(NOTHING))),
      ...pointers.map((pointer) => valueOf(one.values[pointer])),
      ...(come ? [one.parent === null ? quiet(NOTHING) : String(one.parent)] : []),
      count(one.step),
      jobs.has(one.run_id) ? make("a", { href: pageOfJob(one.run_id) }, one.run_id) : make("code", {}, one.run_id),
      one.reason ? make("span", { class: "reason" }, one.reason) : quiet(NOTHING),
    ]);
    const table = scrollable("Trials", makeTable("Trials, newest first", columns, rows));
    table.classList.add("tall");
    return table;
  }
}

// parts: of the address behind #/sweeps.
export const pageOf = (parts) => {
  if (!parts.length) return new SweepsPage();
  return parts.length === 1 && parts[0] ? new SweepPage(parts[0]) : null;
};
