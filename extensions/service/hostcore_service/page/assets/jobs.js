// The table of jobs, newest first, refreshed while it is looked at.

import { get } from "./api.js";
import { Banner, announce, sentence } from "./banner.js";
import { make, makeRow, makeTable, newId, setContent, setText } from "./dom.js";
import { Refreshing } from "./refreshing.js";
import { STATUSES, badge, progressBar, statusWord } from "./status.js";
import { NOTHING, count, duration, firstLine, plural, remaining, timeAgo } from "./words.js";

const REFRESHED_EVERY_SECONDS = 3;
const PAGE = 50;
const FILTERS = ["status", "trainer", "label", "plugin"];
const COLUMNS = [
  ["Job"], ["Status", "bare"], ["Progress", "bare"], ["Time left", "number"], ["Last heartbeat", "number"],
  ["Attempt", "number"], ["Submitted", "number"],
];

const progressCell = (job) => {
  const share = job.max_steps ? Math.floor(100 * Math.min(1, job.step / job.max_steps)) : null;
  const steps = job.max_steps ? `${count(job.step)} / ${count(job.max_steps)}` : plural(job.step, "step");
  const percent = share === null ? null : `${share} %`;
  const bar = progressBar(job, `${percent}, step ${count(job.step)} of ${count(job.max_steps)}`);
  const words = make("span", { class: "words" }, make("span", {}, steps), percent && make("span", {}, percent));
  return make("div", { class: "progress" }, words, bar);
};

const cellsOf = (job) => {
  const left = remaining(job);
  const reason = job.detail ? make("span", { class: "reason clipped", title: job.detail }, firstLine(job.detail)) : null;
  const tags = Object.entries(job.labels).map(([key, value]) => make("span", { class: "tag" }, `${key}=${value}`));
  const owner = job.owner ? ` · ${job.owner}` : "";
  return [
    [make("a", { href: `#/jobs/${encodeURIComponent(job.run_id)}` }, job.run_id),
      make("span", { class: "under" }, `${job.trainer}${owner}`), ...tags],
    [badge(job), reason],
    [progressCell(job)],
    [left === null ? make("span", { class: "quiet" }, NOTHING) : duration(left)],
    [timeAgo(job.seen_ms)],
    [job.attempt ? String(job.attempt) : make("span", { class: "quiet" }, NOTHING)],
    [timeAgo(job.submitted_ms)],
  ];
};

export class JobsPage {
  title = "Jobs";

  constructor() {
    this.heading = make("h1", { tabindex: "-1" }, "Jobs");
    this.banner = new Banner();
    this.rows = new Map();
    this.statuses = new Map();
    this.table = makeTable("Jobs, newest first", COLUMNS, [], { class: "jobs blocks" });
    this.body = this.table.tBodies[0];
    this.empty = make("div", { class: "empty", hidden: true });
    this.shown = make("p", { class: "note", role: "status" });
    this.newest = make("a", { class: "button", hidden: true }, "Newest jobs");
    this.older = make("a", { class: "button", hidden: true }, "Older jobs");
    this.node = make("div", {},
      make("div", { class: "top" }, this.heading,
        make("div", { class: "end" }, make("a", { class: "button primary", href: "#/submit" }, "Submit a job"))),
      this.banner.node,
      make("section", { class: "card flush", "aria-label": "All jobs" }, this.filters(),
        make("div", { class: "scroll" }, this.table), this.empty,
        make("div", { class: "pages" }, this.shown, this.newest, this.older)));
    this.refreshing = new Refreshing((signal) => this.refresh(signal));
  }

  filters() {
    const changed = { change: () => this.choose() }, known = newId("trainers");
    this.fields = {
      status: make("select", { on: changed }, make("option", { value: "" }, "any"),
        ...STATUSES.map((one) => make("option", { value: one }, one))),
      trainer: make("input", { type: "search", list: known, autocomplete: "off", on: changed }),
      label: make("input", { type: "search", placeholder: "key=value", autocomplete: "off", on: changed }),
      plugin: make("input", { type: "search", placeholder: "name>=version", autocomplete: "off", on: changed }),
    };
    this.trainers = make("datalist", { id: known });
    this.find = make("input", { type: "search", autocomplete: "off", on: { input: () => this.filter() } });
    const names = { status: "Status", trainer: "Trainer", label: "Label", plugin: "Plugin used" };
    return make("div", { class: "controls filters", role: "search", "aria-label": "Filter jobs" },
      ...FILTERS.map((name) => make("label", {}, names[name], this.fields[name])), this.trainers,
      make("label", { class: "end" }, "Find on this page", this.find));
  }

  open(query) {
    this.query = query;
    for (const name of FILTERS) this.fields[name].value = query.get(name) ?? "";
    this.refreshing.now();
  }

  close() { this.refreshing.close(); }

  choose() {
    const { label } = this.fields, isLabel = !label.value.trim() || label.value.includes("=");
    label.setCustomValidity(isLabel ? "" : "A label is written as key=value.");
    if (!label.reportValidity()) return;
    const chosen = FILTERS.map((name) => [name, this.fields[name].value.trim()]).filter(([, value]) => value);
    location.hash = this.address(new URLSearchParams(chosen));
  }

  address(query) { return query.size ? `#/jobs?${query}` : "#/jobs"; }

  async refresh(signal) {
    const asked = new URLSearchParams([...this.query, ["limit", PAGE]]);
    try {
      const page = await get(`v1/jobs?${asked}`, { signal });
      this.banner.clear();
      this.show(page);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.banner.show(sentence(error.message), () => this.refreshing.now());
      return Math.max(error.retryAfter, REFRESHED_EVERY_SECONDS);
    }
    return REFRESHED_EVERY_SECONDS;
  }

  show({ jobs, next, unknown }) {
    this.unknown = unknown;
    const gone = new Set(this.rows.keys());
    jobs.forEach((job, place) => {
      gone.delete(job.run_id);
      this.showJob(job, place);
    });
    for (const runId of gone) { this.rows.get(runId).remove(); this.rows.delete(runId); }
    this.announceChanges(jobs);
    const trainers = [...new Set(jobs.map((job) => job.trainer))].sort();
    setContent(this.trainers, ...trainers.map((one) => make("option", { value: one })));
    this.table.hidden = !jobs.length;
    this.showEmpty(jobs);
    this.showPages(next);
    this.filter();
  }

  // A row stays the same element, and a cell keeps what has not changed: focus and selection stay where they are.
  showJob(job, place) {
    let row = this.rows.get(job.run_id);
    const cells = cellsOf(job);
    if (row) {
      cells.forEach((content, index) => setContent(row.cells[index], ...content));
    } else {
      row = makeRow(COLUMNS, cells, { "data-run": job.run_id });
      this.rows.set(job.run_id, row);
    }
    if (this.body.rows[place] !== row) this.body.insertBefore(row, this.body.rows[place] ?? null);
  }

  announceChanges(jobs) {
    const changes = jobs.filter((job) => {
      const before = this.statuses.get(job.run_id);
      return before !== undefined && before !== statusWord(job);
    });
    for (const job of jobs) this.statuses.set(job.run_id, statusWord(job));
    if (changes.length) announce(changes.slice(0, 5).map((job) => `${job.run_id}: ${statusWord(job)}`).join(", "));
  }

  showEmpty(jobs) {
    this.empty.hidden = jobs.length > 0;
    if (jobs.length) return;
    if (this.query.size) {
      setContent(this.empty, make("p", {}, "No job is like this."), make("a", { href: "#/jobs" }, "Show all jobs"));
      return;
    }
    const lines = [
      `curl ${location.origin}${location.pathname}v1/jobs \\`,
      "  -H \"X-TRAINER-TOKEN: $TRAINER_API_TOKEN\" \\",
      "  -H 'Content-Type: application/json' \\",
      "  -d @job.json",
    ];
    setContent(this.empty, make("p", {}, "There are no jobs yet. ", make("a", { href: "#/submit" }, "Submit one here"),
      ", or from a terminal:"), make("pre", {}, make("code", {}, lines.join("\n"))));
  }

  showPages(next) {
    const filters = [...this.query].filter(([name]) => FILTERS.includes(name));
    this.newest.hidden = !this.query.has("cursor");
    this.newest.setAttribute("href", this.address(new URLSearchParams(filters)));
    this.older.hidden = next === null;
    this.older.setAttribute("href", this.address(new URLSearchParams([...filters, ["cursor", next ?? ""]])));
  }

  filter() {
    const wanted = this.find.value.trim().toLowerCase(), rows = [...this.rows.values()];
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    const seen = rows.filter((row) => !row.hidden).length;
    const shown = seen === rows.length ? plural(seen, "job") : `${count(seen)} of ${plural(rows.length, "job")}`;
    setText(this.shown, this.unknown ? `${shown}, and ${count(this.unknown)} of which it is not known` : shown);
  }
}
