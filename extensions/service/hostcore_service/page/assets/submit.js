// A job.json is written or brought here, looked at, and submitted once.

import { post } from "./api.js";
import { announce, sentence } from "./banner.js";
import { make, newId } from "./dom.js";
import { coloured, lineOf } from "./json.js";
import { count } from "./words.js";

const MOST_BYTES = 1 << 20;
const UNCHECKED = "What its plugins and its data are like is found when it starts.";
const DRAFT = "hostcore.draft";
const EXAMPLE = { trainer: "", dataset: { parquet_paths: [] }, max_steps: 1000, checkpoint_every: 100 };

export class SubmitPage {
  title = "Submit a job";

  constructor() {
    const field = newId("job"), help = newId("help");
    this.heading = make("h1", { tabindex: "-1" }, "Submit a job");
    this.text = make("textarea", {
      id: field, spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-describedby": help,
      on: {
        input: () => this.onInput(), dragover: (event) => this.onDrag(event), drop: (event) => this.onDrop(event),
        dragleave: () => this.text.classList.remove("over"),
      },
    });
    this.text.value = sessionStorage.getItem(DRAFT) ?? JSON.stringify(EXAMPLE, null, 2);
    this.file = make("input", {
      type: "file", accept: ".json,application/json", hidden: true,
      on: { change: () => { this.take(this.file.files[0]); this.file.value = ""; } },
    });
    const pick = make("button", { type: "button", on: { click: () => this.file.click() } }, "Open a file…");
    this.validate = make("button", { type: "button", on: { click: () => this.doValidate() } }, "Validate");
    this.submit = make("button", { type: "button", class: "primary", on: { click: () => this.doSubmit() } }, "Submit");
    this.said = make("div", { class: "said", role: "region", "aria-label": "What the service says", tabindex: "-1" });
    this.node = make("div", {},
      make("div", { class: "top" }, this.heading),
      make("section", { class: "card editor", "aria-label": "The job" },
        make("div", { class: "headed" }, make("label", { for: field }, "job.json"),
          make("span", { class: "note", id: help }, "Write it, paste it, or drop a file here.")),
        this.text, this.file,
        make("div", { class: "buttons" }, this.submit, this.validate, pick)),
      this.said);
    this.newKey();
    this.stopping = new AbortController();
  }

  open() {}

  close() { this.stopping.abort(); }

  // The same text with the same key makes one job, however often it is sent.
  newKey() {
    const random = crypto.getRandomValues(new Uint8Array(16));
    this.key = `page-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }

  onInput() {
    this.newKey();
    try { sessionStorage.setItem(DRAFT, this.text.value); } catch { /* Too long to be kept. */ }
  }

  onDrag(event) {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    this.text.classList.add("over");
  }

  onDrop(event) {
    this.text.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    this.take(file);
  }

  async take(file) {
    if (!file) return;
    if (file.size > MOST_BYTES) {
      this.saySingle(`${file.name} is longer than the ${count(MOST_BYTES)} bytes that a job may have`);
      return;
    }
    this.text.value = await file.text();
    this.onInput();
    this.said.replaceChildren();
    announce(`${file.name} was read`);
    this.text.focus();
  }

  async doValidate() {
    await this.asking(this.validate, async () => {
      const found = await post("v1/jobs:validate", this.text.value, { signal: this.stopping.signal });
      this.sayPlan(found);
    });
  }

  async doSubmit() {
    await this.asking(this.submit, async () => {
      const headers = { "Idempotency-Key": this.key };
      const job = await post("v1/jobs", this.text.value, { headers, signal: this.stopping.signal });
      sessionStorage.removeItem(DRAFT);
      location.hash = `#/jobs/${encodeURIComponent(job.run_id)}`;
    });
  }

  async asking(button, work) {
    if (this.isAsking) return;
    this.isAsking = true;
    button.setAttribute("aria-busy", "true");
    this.said.replaceChildren(make("p", { class: "note", role: "status" }, "Asking the service …"));
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") this.sayMistakes(error);
    } finally {
      this.isAsking = false;
      button.removeAttribute("aria-busy");
    }
  }

  say(title, alarming, ...content) {
    const kind = alarming ? "card alarming" : "card";
    this.said.replaceChildren(make("section", { class: kind }, make("h2", {}, title), ...content.filter(Boolean)));
    this.said.focus();
    this.said.scrollIntoView({ block: "nearest" });
  }

  saySingle(message) { this.say("This does not work", true, make("p", {}, sentence(message))); }

  sayMistakes(error) {
    if (!error.errors.length) { this.saySingle(error.message); return; }
    const items = error.errors.map((one) => {
      const line = one.pointer === null ? null : lineOf(this.text.value, one.pointer);
      const place = one.pointer ? make("code", {}, one.pointer) : null;
      const jump = line === null ? null
        : make("button", { type: "button", on: { click: () => this.goTo(line) } }, `line ${line}`);
      return make("li", {}, sentence(one.detail), " ", place, place && jump ? ", " : null, jump,
        one.hint ? make("span", { class: "under" }, sentence(one.hint)) : null);
    });
    const title = items.length === 1 ? "One thing is wrong" : `${count(items.length)} things are wrong`;
    this.say(title, true, make("ul", { class: "mistakes" }, ...items));
  }

  goTo(line) {
    const lines = this.text.value.split("\n"), begin = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.text.focus();
    this.text.setSelectionRange(begin, begin + lines[line - 1].length);
    const height = this.text.scrollHeight / Math.max(1, lines.length);
    this.text.scrollTop = Math.max(0, (line - 4) * height);
  }

  sayPlan({ job, plan }) {
    const plugins = plan.plugins.map(({ kind, name, distribution, version }) => {
      const from = [distribution, version].filter(Boolean).join(" ");
      return `${kind.replaceAll("_", " ")} ${name}${from && ` (${from})`}`;
    });
    const details = (title, value) => make("details", {}, make("summary", {}, title),
      make("pre", { tabindex: "0", role: "region", "aria-label": title }, make("code", {}, ...coloured(value))));
    this.say("It can be submitted", false,
      plan.launch?.summary ? make("p", {}, sentence(plan.launch.summary)) : null,
      plan.checked === null ? make("p", { class: "note" }, UNCHECKED) : null,
      make("ul", {}, ...plugins.map((one) => make("li", {}, one))),
      details("The job as resolved", job),
      plan.checked ? details("What was checked", plan.checked) : null,
      plan.launch?.document ? details("What its launcher is given", plan.launch.document) : null);
  }
}
