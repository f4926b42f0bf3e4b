// What is installed where the service runs, and what is broken.

import { get } from "./api.js";
import { Banner, sentence } from "./banner.js";
import { make, makeTable, scrollable, setText } from "./dom.js";
import { NOTHING, plural } from "./words.js";

const COLUMNS = [["Name"], ["Kind", ""], ["Distribution", ""], ["Version", ""], ["Import path", ""]];
const CONFLICT = "conflict: name it with its distribution";
const quiet = (text) => make("span", { class: "quiet" }, text);
const wordOf = (kind) => kind.replaceAll("_", " ");

export class PluginsPage {
  title = "Plugins";

  constructor() {
    this.heading = make("h1", { tabindex: "-1" }, "Plugins");
    this.banner = new Banner();
    this.find = make("input", { type: "search", autocomplete: "off", on: { input: () => this.filter() } });
    this.kind = make("select", { on: { change: () => this.filter() } }, make("option", { value: "" }, "any"));
    this.shown = make("p", { class: "note", role: "status" });
    this.room = make("div");
    this.broken = make("div");
    this.node = make("div", {},
      make("div", { class: "top" }, this.heading),
      make("p", { class: "lead" },
        "What jobs can name. Installed is not active: none of these is imported before a job names it."),
      this.banner.node, this.broken,
      make("section", { class: "card flush", "aria-label": "Installed plugins" },
        make("div", { class: "controls filters", role: "search", "aria-label": "Filter plugins" },
          make("label", {}, "Kind", this.kind), make("label", { class: "end" }, "Find", this.find)),
        this.room, make("div", { class: "pages" }, this.shown)));
    this.stopping = new AbortController();
  }

  async open() {
    try {
      const { plugins, broken } = await get("v1/plugins", { signal: this.stopping.signal });
      this.show(plugins, broken);
    } catch (error) {
      if (error.name !== "AbortError") this.banner.show(sentence(error.message), () => this.open());
    }
  }

  close() { this.stopping.abort(); }

  show(plugins, broken) {
    const kinds = [...new Set(plugins.map((one) => one.kind))], chosen = this.kind.value;
    this.kind.replaceChildren(make("option", { value: "" }, "any"),
      ...kinds.map((kind) => make("option", { value: kind }, wordOf(kind))));
    this.kind.value = chosen;
    const rows = plugins.map((one) => [
      [make("b", {}, one.name), one.conflict ? make("span", { class: "tag" }, CONFLICT) : null],
      wordOf(one.kind), one.distribution ?? quiet(NOTHING), one.version ?? quiet(NOTHING), make("code", {}, one.value),
    ]);
    const table = makeTable("Installed plugins", COLUMNS, rows, { class: "blocks" });
    this.rows = [...table.tBodies[0].rows];
    this.rows.forEach((row, index) => { row.dataset.kind = plugins[index].kind; });
    this.room.replaceChildren(scrollable("Installed plugins", table));
    this.showBroken(broken);
    this.filter();
  }

  showBroken(broken) {
    if (!broken.length) { this.broken.replaceChildren(); return; }
    const rows = broken.map((one) => [one.distribution ?? NOTHING, one.error, make("code", {}, one.path ?? NOTHING)]);
    const table = makeTable("Broken distributions", [["Distribution"], ["What is wrong", ""], ["Path", ""]], rows);
    this.broken.replaceChildren(make("section", { class: "card alarming", "aria-label": "Broken" },
      make("h2", {}, "Broken"), scrollable("Broken distributions", table)));
  }

  filter() {
    if (!this.rows) return;
    const wanted = this.find.value.trim().toLowerCase(), kind = this.kind.value;
    for (const row of this.rows) {
      row.hidden = !(row.textContent.toLowerCase().includes(wanted) && (!kind || row.dataset.kind === kind));
    }
    const seen = this.rows.filter((row) => !row.hidden).length;
    const all = plural(this.rows.length, "plugin");
    setText(this.shown, seen === this.rows.length ? all : `${seen} of ${all}`);
  }
}
