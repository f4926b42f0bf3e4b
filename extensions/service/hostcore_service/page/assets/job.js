// A job: how it stands, its curves and its log as they grow, and what it left behind.

import { follow, get, post } from "./api.js";
import { Banner, announce, sentence } from "./banner.js";
import { Curves } from "./curves.js";
import { askToCancel } from "./dialogs.js";
import { make, setContent, setText } from "./dom.js";
import { pathOf } from "./download.js";
import { Going, factsOf, reasonOf } from "./job_head.js";
import { artifactsTable, attemptsTable, checkpointsTable, configOf, failureOf, pluginsTable } from "./job_tables.js";
import { Log } from "./log.js";
import { Refreshing } from "./refreshing.js";
import { badge, isOver, statusWord } from "./status.js";

const REFRESHED_EVERY_SECONDS = 3;
const REFRESHED_AFTER_ITS_END_EVERY_SECONDS = 15;
// Events after which the job stands otherwise than a moment before.
const TURNS = /^(run_|checkpoint_saved|sample_saved|artifact_uploaded)/;
const RESUMABLE = ["failed", "cancelled", "preempted", "lost"];

const section = (title, ...content) => {
  return make("section", { class: "card", "aria-label": title }, make("h2", {}, title), ...content);
};
const button = (name, kind, click) => {
  return make("button", { type: "button", class: kind, hidden: true, on: { click } }, name);
};
const nothing = (text) => [make("p", { class: "empty" }, text)];

export class JobPage {
  constructor(runId) {
    this.runId = runId;
    this.path = pathOf("v1/jobs", runId);
    this.title = runId;
    this.heading = make("h1", { tabindex: "-1" }, make("span", { class: "name" }, runId));
    this.banner = new Banner();
    this.status = make("span");
    this.reason = make("p", { class: "lead told", hidden: true });
    this.cancel = button("Cancel…", "danger", () => this.askToCancel());
    this.resume = button("Resume", "primary", () => this.doResume());
    this.curves = new Curves();
    this.log = new Log(runId);
    this.going = new Going();
    this.rooms = Object.fromEntries(["facts", "failure", "attempts", "checkpoints", "artifacts", "plugins", "config"]
      .map((name) => [name, make(name === "facts" ? "dl" : "div")]));
    this.body = this.layout();
    this.body.hidden = true;
    this.node = make("div", {},
      make("div", { class: "top" }, make("p", { class: "crumb" }, make("a", { href: "#/jobs" }, "Jobs")),
        this.heading, this.status, make("div", { class: "end" }, this.cancel, this.resume)),
      this.reason, this.banner.node, this.body);
    this.stopping = new AbortController();
    this.lastSeq = 0;
    this.refreshing = new Refreshing((signal) => this.refresh(signal));
  }

  layout() {
    const { rooms } = this;
    this.failure = make("section", { class: "card alarming", "aria-label": "Failure", hidden: true },
      make("h2", {}, "Failure"), rooms.failure);
    return make("div", {},
      make("section", { class: "card", "aria-label": "Standing" }, this.going.node, rooms.facts),
      this.failure,
      section("Curves", this.curves.node),
      section("Log", this.log.node),
      section("Attempts", rooms.attempts),
      make("div", { class: "pair" }, section("Checkpoints", rooms.checkpoints), section("Artifacts", rooms.artifacts)),
      make("div", { class: "pair" }, section("Plugins", rooms.plugins),
        make("section", { class: "card", "aria-label": "Configuration" }, rooms.config)));
  }

  open() { this.refreshing.now(); }

  close() {
    this.stopping.abort();
    this.refreshing.close();
    this.curves.close();
    this.log.close();
  }

  async refresh(signal) {
    try {
      const job = await get(this.path, { signal });
      this.banner.clear();
      this.show(job);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.banner.show(sentence(error.message), () => this.refreshing.now());
      return Math.max(error.retryAfter, error.status === 404 ? 15 : REFRESHED_EVERY_SECONDS);
    }
    return isOver(this.job) ? REFRESHED_AFTER_ITS_END_EVERY_SECONDS : REFRESHED_EVERY_SECONDS;
  }

  show(job) {
    const before = this.job;
    this.job = job;
    this.body.hidden = false;
    this.showHead(job, before);
    this.showRooms(job);
    const ranks = Math.max(1, job.run?.devices?.length ?? 1);
    this.log.offer({ attempt: job.attempt, ranks, seen: job.sees_run_dir });
    this.followEvents();
    const written = (one) => [statusWord(one), one.run?.checkpoints?.at(-1)?.step].join();
    if (!before || written(before) !== written(job)) this.showArtifacts();
  }

  showHead(job, before) {
    document.title = `${job.run_id}: ${statusWord(job)} · hostcore`;
    setContent(this.status, badge(job));
    const reason = sentence(reasonOf(job));
    setText(this.reason, reason);
    this.reason.hidden = !reason;
    const focused = document.activeElement;
    this.cancel.hidden = isOver(job) || job.cancelling;
    this.resume.hidden = !RESUMABLE.includes(job.status);
    // A button that is hidden loses the focus: the heading gets it.
    if ([this.cancel, this.resume].includes(focused) && focused.hidden) this.heading.focus();
    if (before && statusWord(before) !== statusWord(job)) announce(`${job.run_id}: ${statusWord(job)}`);
    this.going.show(job);
    setContent(this.rooms.facts, ...factsOf(job));
  }

  showRooms(job) {
    const run = job.run ?? {};
    this.failure.hidden = !run.error || !isOver(job);
    if (run.error) this.fill("failure", run.error, () => failureOf(run.error));
    this.fill("attempts", run.attempts ?? [], (attempts) => {
      return attempts.length ? [attemptsTable(attempts)] : nothing("It has not begun yet.");
    });
    this.fill("checkpoints", [run.checkpoints ?? [], [...this.curves.recording.best, run.best?.step]], ([checkpoints, best]) => {
      return [checkpointsTable(job.run_id, checkpoints, best, (error) => this.complain(error))];
    });
    this.fill("plugins", run.plugins ?? [], (plugins) => {
      return plugins.length ? [pluginsTable(plugins)] : nothing("They are known when it begins.");
    });
    this.fill("config", job.job, () => configOf(job.job));
  }

  // Makes what a room holds anew only if it is to say something else: what is open in it stays open.
  fill(name, value, content) {
    const room = this.rooms[name], key = JSON.stringify(value);
    if (room.saying === key) return;
    room.saying = key;
    room.replaceChildren(...content(value).filter(Boolean));
  }

  async showArtifacts() {
    try {
      const { artifacts } = await get(`${this.path}/artifacts`, { signal: this.stopping.signal });
      this.fill("artifacts", artifacts, () => [artifactsTable(this.runId, artifacts, (error) => this.complain(error))]);
    } catch (error) {
      if (error.name !== "AbortError") this.fill("artifacts", error.message, () => nothing(sentence(error.message)));
    }
  }

  complain(error) { this.banner.show(sentence(error.message)); }

  // From the first event on; and once more when a job that was over goes on.
  followEvents() {
    if (this.isFollowing || (this.hasFollowed && isOver(this.job))) return;
    this.isFollowing = this.hasFollowed = true;
    follow(`${this.path}/events?follow=true&since=${this.lastSeq}`, {
      signal: this.stopping.signal,
      onEvent: ({ data }) => this.onEvent(JSON.parse(data)),
      onState: (state) => {
        // A job that was not launched yet may have no events to follow: asked again when it is looked at again.
        if (state === "refused") this.isFollowing = this.hasFollowed = false;
        if (state !== "over") return;
        this.isFollowing = false;
        this.refreshing.now();
      },
    });
  }

  onEvent(event) {
    if (event.seq <= this.lastSeq) return;
    this.lastSeq = event.seq;
    this.curves.add(event);
    // Of what is long past nothing new is to be learned.
    if (TURNS.test(event.event) && event.time_ms > Date.now() - 10_000) {
      this.turned ??= setTimeout(() => { this.turned = undefined; this.refreshing.now(); }, 500);
    }
  }

  async askToCancel() {
    const reason = await askToCancel(this.runId);
    if (reason === null) return;
    await this.change("cancelling", () => post(`${this.path}:cancel`, reason ? { reason } : {}), { cancelling: true });
  }

  async doResume() {
    const expected = { status: "submitted", detail: "", ended_ms: null };
    await this.change("resuming", () => post(`${this.path}:resume`, { launches: this.job.launches }), expected);
  }

  // Shows at once what is to become of the job, and what really did when the service has answered.
  async change(what, ask, expected) {
    const before = this.job;
    this.show({ ...before, ...expected });
    try {
      this.show({ ...before, ...(await ask()) });
      this.refreshing.now();
    } catch (error) {
      this.show(before);
      this.banner.show(sentence(`${what} failed: ${error.message}`));
    }
  }
}
