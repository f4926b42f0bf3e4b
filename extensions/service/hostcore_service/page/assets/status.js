// The status of a job: always a sign and a word, never a colour alone.

import { make, makeSvg } from "./dom.js";

export const STATUSES = ["submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost"];

const RING = "M8 1.75a6.25 6.25 0 1 0 0 12.5a6.25 6.25 0 0 0 0-12.5z";
const SIGNS = {
  submitted: `${RING}M8 4.5V8l2.5 1.75`,
  running: "M8 1.75a6.25 6.25 0 1 1-6.25 6.25M8 7.9v.2",
  succeeded: `${RING}M5 8.25l2.1 2.1L11 6.1`,
  failed: `${RING}M5.75 5.75l4.5 4.5M10.25 5.75l-4.5 4.5`,
  cancelled: `${RING}M3.75 12.25l8.5-8.5`,
  preempted: `${RING}M6.4 5.5v5M9.6 5.5v5`,
  lost: `${RING}M6.3 6.2a1.75 1.75 0 1 1 2.5 1.6q-.8.4-.8 1.2M8 11.2v.1`,
  cancelling: `${RING}M5.9 5.9h4.2v4.2H5.9z`,
};

export const isOver = (job) => !["submitted", "running"].includes(job.status);

export const statusWord = (job) => (job.cancelling ? "cancelling" : job.status);

export const badge = (job) => {
  const word = statusWord(job), known = word in SIGNS ? word : "lost";
  const sign = makeSvg("svg", { viewBox: "0 0 16 16", class: "sign", "aria-hidden": "true" },
    makeSvg("path", { d: SIGNS[known] }));
  return make("span", { class: `status ${known}` }, sign, word);
};

// How far a job is: a bar for those who see it, and the same in words for those who do not.
// Null where the number of steps is unknown.
export const progressBar = (job, told) => {
  if (!job.max_steps) return null;
  const value = Math.min(job.step, job.max_steps);
  return make("progress", {
    max: job.max_steps, value, "aria-label": `Progress of ${job.run_id}`, "aria-valuetext": told,
    "aria-valuemin": 0, "aria-valuemax": job.max_steps, "aria-valuenow": value,
  });
};
