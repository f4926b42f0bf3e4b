"use strict";
// One plot: axes, marks and curves as SVG at their size on the screen, read by pointing or from the keyboard. Shared by
// the page of the service and the report of a run; needs scales.js.
//
// A plot is { title, curves }; a curve { name, role, rough, steps, values, mean_steps, means, nonfinite }. The view is
// what all plots of a page show: { from, to, last, log, smoothing, dotted_up_to, checkpoints, best, attempts }.
const { Picture } = (() => {
  const { number, whole, firstFrom, roundNumbers, powers, label, smooth } = scales;
  const LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 26, CHARACTER = 7;

  const make = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const trendOf = (curve) => {
    if (curve.means.length) return { steps: curve.mean_steps, values: curve.means };
    const steps = [], values = [];
    curve.values.forEach((value, index) => {
      if (value !== null) { steps.push(curve.steps[index]); values.push(value); }
    });
    return { steps, values };
  };
  const isDrawable = (view, value) => value !== null && (!view.log || value > 0);
  const isWithin = (view, step) => step >= view.from && step <= view.to;

  const frameOf = (view, plot, width, height) => {
    let low = Infinity, high = -Infinity;
    for (const curve of plot.curves) {
      const end = firstFrom(curve.steps, view.to + 1);
      for (let index = firstFrom(curve.steps, view.from); index < end; index++) {
        const value = curve.values[index];
        if (isDrawable(view, value)) { low = Math.min(low, value); high = Math.max(high, value); }
      }
    }
    if (low > high) { low = view.log ? 1 : 0; high = view.log ? 10 : 1; }
    if (low === high) {
      const room = Math.abs(low) * 0.05 || 1;
      low -= room; high += room;
    }
    const part = view.log
      ? (value) => Math.log(value / low) / Math.log(high / low)
      : (value) => (value / 2 - low / 2) / (high / 2 - low / 2);
    return {
      width, height, low, high,
      across: (step) => LEFT + (step - view.from) / (view.to - view.from) * (width - LEFT - RIGHT),
      down: (value) => height - BOTTOM - part(value) * (height - TOP - BOTTOM),
    };
  };
  const pathOf = (view, frame, steps, values) => {
    let path = "", lifted = true;
    // One point beyond each edge, so that the line leaves the picture instead of ending in it.
    const begin = Math.max(0, firstFrom(steps, view.from) - 1);
    const end = Math.min(steps.length, firstFrom(steps, view.to + 1) + 1);
    for (let index = begin; index < end; index++) {
      if (!isDrawable(view, values[index])) { lifted = true; continue; }
      path += `${lifted ? "M" : "L"}${frame.across(steps[index]).toFixed(1)},${frame.down(values[index]).toFixed(1)}`;
      lifted = false;
    }
    return path;
  };

  const drawMarks = (view, frame) => {
    const bottom = frame.height - BOTTOM, parts = [];
    const within = (steps) => steps.filter((step) => isWithin(view, step));
    const triangles = within(view.checkpoints).map((step) => `M${frame.across(step)},${bottom}l-3,6h6z`).join("");
    parts.push(make("path", { class: "checkpoint", d: triangles }));
    const best = within(view.best).map((step) => `M${frame.across(step)},${bottom - 11}l4.5,5.5l-4.5,5.5l-4.5,-5.5z`);
    if (best.length) parts.push(make("path", { class: "best", d: best.join("") }));
    let freeFrom = 0;  // a label that would cover the one before is left out
    for (const [attempt, step] of [...view.attempts].sort((one, other) => one[1] - other[1])) {
      if (!isWithin(view, step)) continue;
      const at = Number(frame.across(step)), text = `attempt ${attempt}`, width = CHARACTER * (text.length + 1);
      parts.push(make("path", { class: "attempt", d: `M${at},${TOP}V${bottom}` }));
      const endsThere = at + width > frame.width - RIGHT, left = endsThere ? at - width : at;
      if (left < freeFrom) continue;
      freeFrom = left + width;
      const side = endsThere ? { dx: -4, "text-anchor": "end" } : { dx: 4 };
      parts.push(make("text", { x: at, y: TOP, dy: "0.6em", ...side }, text));
    }
    return parts;
  };
  const drawAxes = (view, frame) => {
    const bottom = frame.height - BOTTOM, right = frame.width - RIGHT, parts = [];
    const rows = view.log ? powers(frame.low, frame.high) : roundNumbers(frame.low, frame.high, 5);
    const columns = roundNumbers(view.from, view.to, frame.width > 600 ? 8 : 4);
    const grid = rows.map((tick) => `M${LEFT},${frame.down(tick)}H${right}`).join("");
    parts.push(make("path", { class: "grid", d: grid }));
    parts.push(make("path", { class: "axis", d: `M${LEFT},${TOP}V${bottom}H${right}` }));
    for (const tick of rows) {
      const place = { x: LEFT - 6, y: frame.down(tick), dy: "0.32em", "text-anchor": "end" };
      parts.push(make("text", place, label(tick, rows, view.log)));
    }
    for (const tick of columns.filter(Number.isInteger)) {
      const anchor = frame.across(tick) > right - 20 ? "end" : "middle";
      parts.push(make("text", { x: frame.across(tick), y: bottom + 17, "text-anchor": anchor }, whole(tick)));
    }
    return [...parts, ...drawMarks(view, frame)];
  };
  const drawCurve = (view, frame, curve) => {
    const trend = trendOf(curve), parts = [];
    const smoothed = view.smoothing > 0 && curve.rough;
    const line = (kind, steps, values) => {
      parts.push(make("path", { class: kind, d: pathOf(view, frame, steps, values) }));
    };
    line(`line ${curve.role}${smoothed ? " raw" : ""}`, curve.steps, curve.values);
    if (smoothed) line(`line ${curve.role}`, trend.steps, smooth(trend.values, view.smoothing));
    if (firstFrom(curve.steps, view.to + 1) - firstFrom(curve.steps, view.from) <= view.dotted_up_to) {
      const dots = curve.steps.map((step, index) => {
        const isShown = isWithin(view, step) && isDrawable(view, curve.values[index]);
        return isShown ? `M${frame.across(step)},${frame.down(curve.values[index])}h0` : "";
      });
      parts.push(make("path", { class: `dots ${curve.role}`, d: dots.join("") }));
    }
    const crosses = curve.nonfinite.filter((step) => isWithin(view, step));
    const cross = crosses.map((step) => `M${frame.across(step)},${TOP}m-4,-4l8,8m-8,0l8,-8`).join("");
    if (cross) parts.push(make("path", { class: "nonfinite", d: cross }));
    return parts;
  };

  class Picture {
    // figure: has a figcaption with an h3 and a .reading for each curve, and an svg with a desc.
    // enlarge(from, to): called when the user has chosen these steps.
    constructor(figure, plot, view, enlarge) {
      Object.assign(this, { figure, plot, view, enlarge });
      this.svg = figure.querySelector("svg");
      this.readings = [...figure.querySelectorAll(".reading")];
      this.ends = this.readings.map((one) => one.textContent);
      this.place = document.createElement("span");
      this.place.className = "at";
      figure.querySelector("h3").append(" ", this.place);
      this.svg.setAttribute("aria-label", plot.title);
      this.addReader();
      this.addPointer();
      this.stale = true;
    }

    // Reads the curves from the keyboard, and aloud.
    addReader() {
      this.reader = document.createElement("input");
      Object.assign(this.reader, { type: "range", className: "reader", min: 0, step: 1 });
      this.reader.setAttribute("aria-label", `Read ${this.plot.title} step by step`);
      this.reader.addEventListener("input", () => this.read(this.steps[Number(this.reader.value)]));
      this.reader.addEventListener("focus", () => this.read(this.steps[Number(this.reader.value)]));
      this.reader.addEventListener("blur", () => this.forget());
      this.svg.after(this.reader);
    }

    addPointer() {
      const stepAt = (event) => {
        const box = this.svg.getBoundingClientRect();
        const x = (event.clientX - box.left) * (this.frame.width / box.width);
        const share = (x - LEFT) / (this.frame.width - LEFT - RIGHT);
        return this.view.from + Math.min(1, Math.max(0, share)) * (this.view.to - this.view.from);
      };
      this.svg.addEventListener("pointerdown", (event) => {
        if (event.button || !this.frame) return;
        this.begun = stepAt(event);
        this.svg.setPointerCapture(event.pointerId);
      });
      this.svg.addEventListener("pointermove", (event) => {
        if (!this.frame) return;
        const step = stepAt(event);
        this.read(step);
        if (this.begun !== undefined) this.select(this.begun, step);
      });
      this.svg.addEventListener("pointerup", (event) => {
        if (this.begun === undefined) return;
        const edges = [this.begun, stepAt(event)].sort((a, b) => a - b);
        this.begun = undefined;
        this.forget();
        const wide = this.frame.across(edges[1]) - this.frame.across(edges[0]) > 6;
        if (wide) this.enlarge(Math.floor(edges[0]), Math.ceil(edges[1]));
      });
      this.svg.addEventListener("pointercancel", () => { this.begun = undefined; this.forget(); });
      this.svg.addEventListener("pointerleave", () => { if (this.begun === undefined) this.forget(); });
      this.svg.addEventListener("dblclick", () => this.enlarge(0, this.view.last));
    }

    draw() {
      const width = Math.round(this.svg.clientWidth);
      if (!width) return;
      const { view, plot } = this;
      this.stale = false;
      this.width = width;
      const height = this.figure.classList.contains("large") ? Math.min(320, Math.max(220, width * 0.4)) : 210;
      this.frame = frameOf(view, plot, width, height);
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const description = this.svg.querySelector("desc"), clip = `clip-${this.figure.dataset.plot}`;
      const room = make("clipPath", { id: clip });
      room.append(make("rect", { x: LEFT, y: 0, width: width - LEFT - RIGHT + 4, height: height - BOTTOM + 4 }));
      const curves = make("g", { "clip-path": `url(#${clip})` });
      curves.append(...plot.curves.flatMap((curve) => drawCurve(view, this.frame, curve)));
      this.overlay = make("g", {});
      this.svg.replaceChildren(description, room, ...drawAxes(view, this.frame), curves, this.overlay);
      const steps = plot.curves.flatMap((curve) => curve.steps.filter((step) => isWithin(view, step)));
      this.steps = [...new Set(steps)].sort((a, b) => a - b);
      this.reader.max = Math.max(0, this.steps.length - 1);
      this.reader.disabled = !this.steps.length;
      // A reader goes on at the same step.
      if (this.at !== undefined) { this.read(this.at); return; }
      this.reader.value = this.reader.max;
      this.describe(this.steps[this.steps.length - 1]);
    }

    // The point of each curve that is nearest to a step.
    nearest(step) {
      return this.plot.curves.map((curve) => {
        const after = firstFrom(curve.steps, step);
        const candidates = [after - 1, after].filter((index) => index in curve.steps);
        candidates.sort((a, b) => Math.abs(curve.steps[a] - step) - Math.abs(curve.steps[b] - step));
        return candidates.length ? { step: curve.steps[candidates[0]], value: curve.values[candidates[0]] } : undefined;
      });
    }

    describe(step) {
      if (step === undefined) return;
      const names = this.plot.curves.map((curve) => curve.name);
      const told = this.nearest(step).map((point, index) => (point ? `${names[index]} ${number(point.value)}` : ""));
      this.reader.setAttribute("aria-valuetext", `step ${whole(step)}: ${told.filter(Boolean).join(", ")}`);
    }

    read(step) {
      if (step === undefined || !this.frame) return;
      const points = this.nearest(step), there = points.filter(Boolean);
      if (!there.length) return;
      const near = there.reduce((a, b) => (Math.abs(b.step - step) < Math.abs(a.step - step) ? b : a)).step;
      this.at = near;
      this.place.textContent = `at step ${whole(near)}`;
      points.forEach((point, index) => {
        const other = point && point.step !== near ? ` (step ${whole(point.step)})` : "";
        this.readings[index].textContent = point ? `${number(point.value)}${other}` : "-";
      });
      const { across, down, height } = this.frame;
      const dots = points.map((point, index) => {
        if (!point || !isDrawable(this.view, point.value) || !isWithin(this.view, point.step)) return [];
        const place = `M${across(point.step)},${down(point.value)}h0`;
        return [make("path", { class: `dots ${this.plot.curves[index].role}`, d: place })];
      }).flat();
      const line = make("path", { class: "reader-line", d: `M${across(near)},${TOP}V${height - BOTTOM}` });
      this.overlay.replaceChildren(line, ...dots);
      this.reader.value = Math.min(this.steps.length - 1, firstFrom(this.steps, near));
      this.describe(near);
    }

    select(from, to) {
      const [left, right] = [from, to].map((step) => this.frame.across(step)).sort((a, b) => a - b);
      const height = this.frame.height - TOP - BOTTOM;
      this.overlay.append(make("rect", { class: "selection", x: left, y: TOP, width: right - left, height }));
    }

    forget() {
      this.at = undefined;
      if (this.overlay) this.overlay.replaceChildren();
      this.place.textContent = "";
      this.readings.forEach((one, index) => { one.textContent = this.ends[index]; });
    }

    // What is told beside the names of the curves while no step is read.
    setEnds(texts) {
      this.ends = texts;
      if (this.at === undefined) this.forget();
    }
  }

  return { Picture };
})();
