// The upper part of a job's page: what it is, how it stands, and why.

import { make, setContent } from "./dom.js";
import { isOver, progressBar } from "./status.js";
import { NOTHING, at, count, duration, figure, plural, remaining, timeAgo } from "./words.js";

const fact = (name, ...content) => make("div", {}, make("dt", {}, name), make("dd", {}, ...content));

const tag = ([key, value]) => make("span", { class: "tag" }, `${key}=${value}`);

const seconds = (one) => (one.started_ms ? ((one.ended_ms ?? Date.now()) - one.started_ms) / 1000 : 0);

// That of the newest attempt and, of several, of all together.
const durationOf = (job) => {
  const attempts = job.run?.attempts ?? [], newest = attempts.at(-1) ?? job;
  if (!newest.started_ms) return NOTHING;
  if (attempts.length < 2) return duration(seconds(newest));
  const all = attempts.reduce((sum, one) => sum + seconds(one), 0);
  return `${duration(seconds(newest))} (${duration(all)} in ${attempts.length} attempts)`;
};

export const factsOf = (job) => {
  const { run } = job, labels = Object.entries(job.labels);
  const times = job.launches > 1 ? `, launched ${plural(job.launches, "time")}` : "";
  const warnings = run?.warnings ?? [];
  return [
    ...warnings.map((one) => fact("Warning", one.message)),
    warnings.at(-1)?.hint ? fact("Hint", warnings.at(-1).hint) : null,
    fact("Trainer", job.trainer),
    fact("Launcher", job.launcher),
    fact("Attempt", job.attempt ? `${job.attempt}${times}` : NOTHING),
    fact("Last heartbeat", timeAgo(job.seen_ms)),
    fact("Submitted", timeAgo(job.submitted_ms), ` by ${job.submitted_by}`),
    fact(job.ended_ms ? "Ended" : "Started", timeAgo(job.ended_ms ?? job.started_ms)),
    fact("Duration", make("span", job.started_ms ? { title: `since ${at(job.started_ms)}` } : {}, durationOf(job))),
    run?.best ? fact("Best", `${run.best.metric} ${figure(run.best.value)} at step ${count(run.best.step)}`) : null,
    run?.devices?.length ? fact("Devices", run.devices.join(", ")) : null,
    job.owner ? fact("Owner", job.owner) : null,
    job.exit_code === null ? null : fact("Exit code", String(job.exit_code)),
    run?.parent ? fact("Continues", typeof run.parent === "string" ? run.parent : JSON.stringify(run.parent)) : null,
    labels.length ? fact("Labels", ...labels.map(tag)) : null,
  ].filter(Boolean);
};

const told = (job) => {
  const step = Math.max(job.step, isOver(job) ? 0 : job.run?.step ?? 0), left = remaining(job);
  const words = [job.max_steps ? `Step ${count(step)} of ${count(job.max_steps)}` : plural(step, "step")];
  if (job.max_steps) words.push(`${Math.floor(100 * Math.min(1, step / job.max_steps))} %`);
  return { step, words: words.join(" · "), left: left === null ? "" : `about ${duration(left)} left` };
};

export class Going {
  constructor() {
    this.words = make("span");
    this.left = make("span", { class: "quiet" });
    this.room = make("div");
    this.node = make("div", { class: "going" }, make("div", { class: "words" }, this.words, this.left), this.room);
  }

  show(job) {
    const { step, words, left } = told(job);
    setContent(this.words, words);
    setContent(this.left, left);
    setContent(this.room, progressBar({ ...job, step }, left ? `${words}, ${left}` : words));
  }
}

// Why a job is as it is; nothing if there is nothing to say, or if the failure says it.
export const reasonOf = (job) => {
  if (job.cancelling) return "It was asked to end, and writes a checkpoint first.";
  if (job.detail) return job.detail === job.run?.error?.message ? "" : job.detail;
  if (job.status === "submitted") return "It waits for its launcher.";
  return "";
};
