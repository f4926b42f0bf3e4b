// The lower part of a job's page: attempts, checkpoints, files, plugins, the job itself.

import { get } from "./api.js";
import { pathOf, downloadLink } from "./download.js";
import { make, makeTable, scrollable } from "./dom.js";
import { coloured } from "./json.js";
import { badge } from "./status.js";
import { NOTHING, bytes, count, duration, firstLine, timeAgo } from "./words.js";

const ATTEMPTS = [
  ["Attempt"], ["Status", "bare"], ["Steps", "number"], ["Began", "number"], ["Duration", "number"], ["Why it ended"],
];
const CHECKPOINTS = [
  ["Step"], ["Epoch", "number"], ["Attempt", "number"], ["Size", "number"], ["Saved", "number"], ["Files"],
];
const FILES = [["File"], ["Size", "number"], ["Changed", "number"]];
const PLUGINS = [["Name"], ["Kind"], ["Distribution"], ["Version"]];

const quiet = (text) => make("span", { class: "quiet" }, text);

// What is scrolled on its own, from the keyboard too.
const region = (name) => ({ tabindex: "0", role: "region", "aria-label": name });

export const attemptsTable = (attempts) => {
  const rows = [...attempts].reverse().map((one) => [
    String(one.attempt),
    badge({ status: one.status }),
    `${count(one.first_step ?? 0)} – ${count(one.last_step ?? 0)}`,
    timeAgo(one.started_ms),
    one.started_ms && one.ended_ms ? duration((one.ended_ms - one.started_ms) / 1000) : quiet(NOTHING),
    one.error ? firstLine(`${one.error.type}: ${one.error.message}`) : one.reason ?? quiet(NOTHING),
  ]);
  return scrollable("Attempts", makeTable("Attempts, newest first", ATTEMPTS, rows));
};

const filesOf = (runId, step, record, onProblem) => {
  const items = record.files.map(({ path, size }) => {
    const link = downloadLink(pathOf("v1/jobs", runId, "checkpoints", step, "files", path), path, onProblem);
    return make("li", {}, link, quiet(bytes(size)));
  });
  return make("ul", { class: "files" }, ...items);
};

const checkpointFiles = (runId, step, onProblem) => {
  const room = make("div"), name = make("summary", {}, "Files", make("span", { class: "aside" }, ` of step ${step}`));
  const node = make("details", {}, name, room);
  node.addEventListener("toggle", async () => {
    if (!node.open || room.hasChildNodes()) return;
    try {
      room.append(filesOf(runId, step, await get(pathOf("v1/jobs", runId, "checkpoints", step)), onProblem));
    } catch (error) {
      node.open = false;
      onProblem(error);
    }
  });
  return node;
};

export const checkpointsTable = (runId, checkpoints, best, onProblem) => {
  if (!checkpoints.length) return make("p", { class: "empty" }, "None has been written yet.");
  const rows = [...checkpoints].sort((a, b) => b.step - a.step).map((one) => [
    [count(one.step), one.final ? make("span", { class: "tag after" }, "final") : null,
      best.includes(one.step) ? make("span", { class: "tag after" }, "best") : null],
    one.epoch === null || one.epoch === undefined ? quiet(NOTHING) : count(one.epoch + 1),
    String(one.attempt ?? NOTHING), bytes(one.bytes), timeAgo(one.saved_ms),
    checkpointFiles(runId, one.step, onProblem),
  ]);
  return scrollable("Checkpoints", makeTable("Checkpoints, newest first", CHECKPOINTS, rows));
};

export const artifactsTable = (runId, artifacts, onProblem) => {
  if (!artifacts.length) return make("p", { class: "empty" }, "There are none yet.");
  const rows = artifacts.map((one) => [
    downloadLink(pathOf("v1/jobs", runId, "artifacts", one.path), one.path, onProblem),
    bytes(one.bytes), timeAgo(one.modified_ms),
  ]);
  return scrollable("Artifacts", makeTable("Artifacts", FILES, rows));
};

export const pluginsTable = (plugins) => {
  const rows = plugins.map(({ name, kind, distribution, version }) => {
    return [name, kind.replaceAll("_", " "), distribution ?? quiet(NOTHING), version ?? quiet(NOTHING)];
  });
  return scrollable("Plugins", makeTable("Plugins of this job", PLUGINS, rows));
};

export const failureOf = (error) => {
  const rank = error.rank === null || error.rank === undefined ? null : `on rank ${error.rank}`;
  const where = [rank, error.plugin && `in ${error.plugin}`];
  return [
    make("p", { class: "told" }, make("b", {}, `${error.type}: `), error.message),
    where.some(Boolean) ? make("p", { class: "quiet" }, `First seen ${where.filter(Boolean).join(", ")}.`) : null,
    error.hint ? make("p", {}, error.hint) : null,
    error.traceback ? make("pre", { class: "traceback", ...region("Traceback") }, error.traceback) : null,
  ];
};

export const configOf = (job) => {
  const told = make("span", { role: "status", class: "note" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(JSON.stringify(job, null, 2));
      told.textContent = "Copied.";
    } catch {
      told.textContent = "The browser does not allow it.";
    }
  };
  return [
    make("div", { class: "headed" }, make("h2", {}, "Configuration"),
      make("span", {}, told, " ", make("button", { type: "button", class: "small", on: { click: copy } }, "Copy"))),
    make("pre", region("The job as resolved"), make("code", {}, ...coloured(job))),
  ];
};
