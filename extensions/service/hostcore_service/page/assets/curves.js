// The curves of a job, drawn anew as its events come in.

import { make, makeSvg, newId, setText } from "./dom.js";
import { Recording } from "./recording.js";
import { NOTHING, figure, plural } from "./words.js";

const DRAWS_EVERY_MS = 500;

const controlsOf = () => {
  const number = { type: "number", min: 0, step: 1, inputmode: "numeric" };
  const controls = {
    find: make("input", { type: "search" }),
    smoothing: make("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0.8 }),
    log: make("input", { type: "checkbox" }),
    from: make("input", number),
    to: make("input", number),
    reset: make("button", { type: "button" }, "All steps"),
  };
  const node = make("div", { class: "controls", role: "group", "aria-label": "How the curves are shown" },
    make("label", {}, "Find a metric ", controls.find),
    make("label", {}, "Smoothing ", controls.smoothing),
    make("label", { class: "check" }, controls.log, " Logarithmic"),
    make("label", {}, "Steps from ", controls.from),
    make("label", {}, "to ", controls.to),
    controls.reset);
  return { node, controls };
};

export class Curves {
  constructor() {
    this.recording = new Recording();
    const { node, controls } = controlsOf();
    this.view = {
      from: 0, to: 1, last: 1, log: false, smoothing: 0.8, dotted_up_to: 40, checkpoints: [], best: [], attempts: [],
    };
    this.gallery = new Gallery(this.view, controls);
    this.controls = node;
    this.note = make("p", { class: "note" });
    this.plots = make("div", { class: "plots" });
    this.empty = make("p", { class: "empty" }, "Nothing has been measured yet.");
    this.node = make("div", { class: "script" }, node, this.note, this.empty, this.plots);
    this.drawn = new Map();
    this.draw();
  }

  close() {
    clearTimeout(this.timer);
    this.gallery.close();
  }

  add(event) {
    this.recording.add(event);
    this.timer ??= setTimeout(() => { this.timer = undefined; this.draw(); }, DRAWS_EVERY_MS);
  }

  draw() {
    const plots = this.recording.plots();
    this.controls.hidden = this.note.hidden = !plots.length;
    this.empty.hidden = plots.length > 0;
    const { checkpoints, best, attempts, last_step } = this.recording;
    Object.assign(this.view, { checkpoints, best, attempts });
    this.gallery.growTo(last_step);
    plots.forEach((plot, place) => this.show(plot, place));
    setText(this.note, this.explanation(plots));
    this.gallery.drawAnew();
  }

  explanation(plots) {
    const curves = plots.flatMap((plot) => plot.curves.map((one) => one.curve)), signs = [];
    if (this.view.checkpoints.length) signs.push("▲ on the axis is a checkpoint");
    if (this.view.best.length) signs.push("◇ the one at which a metric was best");
    if (this.view.attempts.length) signs.push("a dashed upright line is where a later attempt began");
    if (curves.some((curve) => curve.rough)) signs.push("a strong line is the moving average of the pale one");
    if (curves.some((curve) => curve.isThinned)) signs.push("long curves are drawn by their lowest and highest values");
    if (curves.some((curve) => curve.nonfinite.length)) signs.push("✕ marks values that were not finite");
    if (this.recording.restored !== null) {
      signs.push(`values beside names are of step ${this.recording.restored}, to which the trainer went back`);
    }
    if (this.recording.leftOut.size) signs.push(`${plural(this.recording.leftOut.size, "more metric")} not drawn`);
    return `${["The axes count finished steps", ...signs].join("; ")}.`;
  }

  show(plot, place) {
    const names = plot.curves.map((one) => one.name).join("\n");
    let drawn = this.drawn.get(plot.title);
    if (drawn && drawn.names !== names) {
      this.gallery.remove(drawn.picture);
      drawn.picture.figure.remove();
      drawn = undefined;
    }
    if (!drawn) {
      const made = this.figureOf(plot, place === 0);
      this.plots.insertBefore(made, this.plots.children[place] ?? null);
      drawn = { names, picture: this.gallery.add(made, { title: plot.title, curves: [] }) };
      this.drawn.set(plot.title, drawn);
    }
    for (const one of plot.curves) one.curve.finish();
    drawn.picture.plot.curves = plot.curves.map(({ name, role, curve }) => {
      return Object.assign(Object.create(curve), { name, role });
    });
    drawn.picture.setEnds(plot.curves.map(({ curve }) => (curve.last === null ? NOTHING : figure(curve.last))));
    const told = plot.curves.map(({ name, curve }) => {
      const last = curve.last === null ? "none finite" : `last ${figure(curve.last)}`;
      return `${name}: ${plural(curve.steps.length, "point")}, ${last}`;
    });
    setText(drawn.picture.svg.querySelector("desc"), told.join("; "));
  }

  figureOf(plot, large) {
    const description = newId("described");
    const keys = plot.curves.map(({ name, role }) => make("li", {},
      make("span", { class: `key ${role}` }, name), " ", make("b", { class: "reading" })));
    const svg = makeSvg("svg", { role: "img", "aria-label": plot.title, "aria-describedby": description },
      makeSvg("desc", { id: description }));
    return make("figure", { class: large ? "plot large" : "plot", "data-plot": newId("plot") },
      make("figcaption", {}, make("h3", {}, plot.title), make("ul", { class: "legend" }, ...keys)), svg);
  }
}
