// The output of a job's processes as it is written: the newest part of it, in bounded memory.

import { follow } from "./api.js";
import { make, newId, setText } from "./dom.js";
import { count } from "./words.js";

const MOST_LINES = 5000;
const ASKED_AGAIN_AFTER_MS = 3000;
const MOST_OF_A_LINE = 10_000;
// Colours and other orders to a terminal.
// eslint-disable-next-line no-control-regex
const ORDERS = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]/g;

// Lines as a terminal would leave them: a carriage return begins the same line anew.
export class Lines {
  constructor() { this.clear(); }

  clear() {
    this.lines = [];
    this.open = "";
    this.dropped = 0;
  }

  add(text) {
    const parts = (this.open + text).split("\n");
    this.open = parts.pop().slice(-MOST_OF_A_LINE);
    for (const part of parts) this.lines.push(Lines.shown(part));
    const excess = this.lines.length - MOST_LINES;
    if (excess > 0) { this.lines.splice(0, excess); this.dropped += excess; }
  }

  static shown(line) {
    const plain = line.replace(ORDERS, "").replace(/\r+$/, "");
    return plain.slice(plain.lastIndexOf("\r") + 1).slice(0, MOST_OF_A_LINE);
  }

  get isEmpty() { return this.lines.length === 0 && this.open === ""; }

  toString() {
    const last = Lines.shown(this.open);
    return last ? [...this.lines, last].join("\n") : this.lines.join("\n");
  }
}

export class Log {
  constructor(runId) {
    this.runId = runId;
    this.lines = new Lines();
    const label = newId("log");
    this.source = make("select", { on: { change: () => this.open() } });
    this.following = make("input", { type: "checkbox", checked: true, on: { change: () => this.scroll() } });
    this.state = make("p", { class: "note", id: label, role: "status" });
    // Not announced line by line: a training log would never let a screen reader finish.
    this.text = make("pre", {
      class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log", "aria-describedby": label,
    });
    this.text.addEventListener("scroll", () => this.onScroll());
    this.node = make("div", {},
      make("div", { class: "controls", role: "group", "aria-label": "Which log" },
        make("label", {}, "Written by ", this.source),
        make("label", { class: "check" }, this.following, " Follow")),
      this.text, this.state);
    this.choices = "";
  }

  // Offers the log of each process of each attempt, where the service sees them, and that of the launcher.
  offer({ attempt, ranks, seen }) {
    const choices = [];
    // Where it will be is not known before it has begun: the service finds that out.
    if (seen && !attempt) choices.push(["", "attempt 1"]);
    for (let one = attempt; seen && one >= Math.max(1, attempt - 20); one--) {
      for (let rank = 0; rank < ranks; rank++) {
        const name = ranks > 1 ? `rank ${rank}, attempt ${one}` : `attempt ${one}`;
        choices.push([`source=worker&rank=${rank}&attempt=${one}`, name]);
      }
    }
    choices.push(["source=launcher", "the launcher"]);
    const key = choices.map(([value]) => value).join(" ");
    if (key === this.choices) return;
    // A selector that stood at the newest attempt moves to a new one.
    const newest = choices[0][0], wasNewest = this.source.selectedIndex <= 0;
    const kept = this.source.value;
    this.choices = key;
    this.source.replaceChildren(...choices.map(([value, name]) => make("option", { value }, name)));
    this.source.value = wasNewest || !choices.some(([value]) => value === kept) ? newest : kept;
    if (this.source.value !== kept || !this.stopping) this.open();
  }

  open() {
    this.close();
    this.lines.clear();
    this.isOver = false;
    this.show();
    this.stopping = new AbortController();
    const path = `v1/jobs/${encodeURIComponent(this.runId)}/logs?${this.source.value}&follow=true`;
    follow(path, {
      signal: this.stopping.signal,
      onEvent: ({ event, data }) => { if (event === "text") this.add(JSON.parse(data).text); },
      onState: (state, problem) => this.tell(state, problem),
    });
  }

  close() {
    this.stopping?.abort();
    clearTimeout(this.again);
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
  }

  add(text) {
    this.lines.add(text);
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.show(); });
  }

  show() {
    const selection = getSelection();
    // Who has marked some of it wants to copy it.
    if (!selection.isCollapsed && this.text.contains(selection.anchorNode)) return;
    setText(this.text, this.lines.toString());
    this.tellState();
    this.scroll();
  }

  tell(state, problem) {
    if (state === "refused" && problem.status === 404) {
      // It may not have been begun yet.
      this.told = "There is no such log.";
      this.again = setTimeout(() => this.open(), ASKED_AGAIN_AFTER_MS);
    } else if (problem) {
      this.told = `Interrupted: ${problem.message}.`;
    } else {
      this.told = "";
    }
    this.isOver = state === "over";
    this.tellState();
  }

  tellState() {
    const { dropped, isEmpty } = this.lines;
    const before = dropped ? `The first ${count(dropped)} lines are not shown.` : "";
    const after = this.isOver && !isEmpty ? "This is all of it." : this.told;
    setText(this.state, [before, after].filter(Boolean).join(" "));
    const nothing = this.isOver ? "Nothing was written." : "Nothing has been written yet.";
    this.text.dataset.empty = isEmpty ? nothing : "";
  }

  scroll() {
    if (!this.following.checked) return;
    this.mine = true;
    this.text.scrollTop = this.text.scrollHeight;
  }

  // Who scrolls up wants to read; who comes back to the end, to follow.
  onScroll() {
    if (this.mine) { this.mine = false; return; }
    this.following.checked = this.text.scrollHeight - this.text.clientHeight - this.text.scrollTop < 8;
  }
}
