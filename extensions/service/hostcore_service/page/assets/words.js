// Numbers, times and sizes in words.

import { make } from "./dom.js";

export const NOTHING = "–";

export const count = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 0 });
export const figure = (value) => (typeof value === "number" ? scales.number(value) : "not finite");
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export const bytes = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0, left = value;
  while (left >= 999.5 && power < units.length - 1) { left /= 1000; power += 1; }
  return `${power && left < 9.95 ? left.toFixed(1) : Math.round(left)} ${units[power]}`;
};

export const duration = (seconds) => {
  const whole = Math.max(0, Math.round(seconds));
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24, minutes = Math.floor(whole / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min${minutes < 10 ? ` ${whole % 60} s` : ""}`;
  return `${whole} s`;
};

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
export const at = (ms) => moment.format(new Date(ms));

export const ago = (ms, now = Date.now()) => {
  const seconds = (now - ms) / 1000;
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
};

// What fits into a table of a text that may have several lines.
export const firstLine = (text) => text.split("\n", 1)[0];

// A time that is told relative to now, and exactly by its title.
export const timeAgo = (ms) => {
  if (ms === null || ms === undefined) return make("span", { class: "quiet" }, NOTHING);
  return make("time", { datetime: new Date(ms).toISOString(), title: at(ms), "data-ms": ms }, ago(ms));
};

export const tellTimesAnew = () => {
  const now = Date.now();
  for (const one of document.querySelectorAll("time[data-ms]")) {
    const text = ago(Number(one.dataset.ms), now);
    if (one.textContent !== text) one.textContent = text;
  }
};

// How long a job will still take, in seconds; null: unknown.
export const remaining = (job, now = Date.now()) => {
  if (job.status !== "running" || !job.max_steps) return null;
  if (job.run && job.run.eta_seconds !== null && job.run.eta_seconds !== undefined) return job.run.eta_seconds;
  const spent = (job.seen_ms ?? now) - (job.started_ms ?? now);
  // Of the first seconds most went by before the first step, and where a later attempt began is not known.
  if (job.attempt > 1 || job.step < 1 || spent < 3000) return null;
  return Math.max(0, (job.max_steps - job.step) * (spent / job.step) / 1000);
};
