"use strict";
// Sorts the table of trials, shows a trial everywhere when one points at it, and those alone that lie in a range of an
// axis. Without this script all is there as well.
(() => {
  const table = document.querySelector("#trials table");
  const marks = new Map();
  for (const one of document.querySelectorAll("[data-trial]")) {
    const found = marks.get(one.dataset.trial);
    if (found) found.push(one); else marks.set(one.dataset.trial, [one]);
  }
  let chosen = null;
  const choose = (trial) => {
    if (trial === chosen) return;
    for (const one of marks.get(chosen) ?? []) one.classList.remove("chosen");
    for (const one of marks.get(trial) ?? []) one.classList.add("chosen");
    chosen = trial;
  };
  const trialOf = (event) => event.target.closest?.("[data-trial]")?.dataset.trial ?? null;
  document.addEventListener("pointerover", (event) => choose(trialOf(event)));
  document.addEventListener("focusin", (event) => choose(trialOf(event)));

  // Dragging along an axis of the parameters leaves the trials between both ends alone, everywhere; a click on the axis
  // lets go of it.
  const NEAR = 14, LEAST = 3;
  const brush = (svg) => {
    const rectangle = (look, x) => {
      const made = document.createElementNS(svg.namespaceURI, "rect");
      made.setAttribute("class", look);
      made.setAttribute("x", x - NEAR / 2);
      made.setAttribute("width", NEAR);
      return made;
    };
    const place = (one, top, bottom) => { one.setAttribute("y", top); one.setAttribute("height", bottom - top); };
    const axes = [...svg.querySelectorAll(".axis")].map((path) => {
      const [x, top, bottom] = path.getAttribute("d").match(/[\d.]+/g);
      const grip = rectangle("grip", x), range = rectangle("range", x);
      place(grip, top, bottom);
      svg.prepend(grip);
      svg.append(range);
      return { x, top: Number(top), bottom: Number(bottom), range, ends: null };
    });
    const heights = new Map();
    for (const path of svg.querySelectorAll("[data-trial]")) {
      const found = heights.get(path.dataset.trial) ?? new Map();
      for (const [, x, y] of path.getAttribute("d").matchAll(/([\d.]+),([\d.]+)/g)) found.set(x, Number(y));
      heights.set(path.dataset.trial, found);
    }
    const reset = document.createElement("button");
    reset.type = "button";
    reset.className = "reset";
    svg.closest("figure").querySelector("figcaption").append(reset);

    const show = () => {
      const held = axes.filter((axis) => axis.ends);
      let kept = 0;
      for (const [trial, ones] of marks) {
        const isOut = held.some(({ x, ends: [top, bottom] }) => {
          const y = heights.get(trial)?.get(x);  // none where the job has no value
          return !(y >= top && y <= bottom);
        });
        for (const one of ones) one.classList.toggle("out", isOut);
        kept += !isOut;
      }
      for (const { range, ends } of axes) place(range, ...(ends ?? [0, 0]));
      reset.hidden = !held.length;
      reset.textContent = `${kept} of ${marks.size} trials: show all`;
    };
    reset.addEventListener("click", () => {
      for (const axis of axes) axis.ends = null;
      show();
    });
    const at = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let dragged = null;
    svg.addEventListener("pointerdown", (event) => {
      const { x, y } = at(event);
      const axis = axes.find((one) => Math.abs(one.x - x) <= NEAR && y > one.top - NEAR && y < one.bottom + NEAR);
      if (!axis || event.button || event.pointerType === "touch") return;
      svg.setPointerCapture(event.pointerId);
      dragged = { axis, from: y };
      document.body.classList.add("dragging");
      axis.ends = null;
      show();
    });
    svg.addEventListener("pointermove", (event) => {
      if (!dragged) return;
      const { axis, from } = dragged;
      const ends = [from, at(event).y].map((y) => Math.min(Math.max(y, axis.top), axis.bottom)).sort((a, b) => a - b);
      axis.ends = ends[1] - ends[0] < LEAST ? null : ends;
      show();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, () => {
        dragged = null;
        document.body.classList.remove("dragging");
      });
    }
    show();
  };
  for (const svg of document.querySelectorAll("#parallel svg.trials")) brush(svg);
  if (!table) return;

  // A number where the cell is one; what is no value comes last, whichever way.
  const keyOf = (text) => {
    if (text === "-" || text === "") return null;
    const number = Number(text.replace(/^best /, "").replaceAll(",", ""));
    return Number.isNaN(number) ? text : number;
  };
  const seconds = (text) => {
    const units = { d: 86400, h: 3600, m: 60, s: 1 };
    const parts = [...text.matchAll(/([\d.]+)([dhms])/g)];
    return parts.length ? parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit], 0) : null;
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (a < b ? -1 : a > b ? 1 : 0);
  };
  const body = table.tBodies[0];
  const sort = (head) => {
    const isUp = head.getAttribute("aria-sort") !== "ascending";
    for (const one of head.parentElement.cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const column = head.cellIndex, isTime = head.textContent === "Duration";
    const keyed = [...body.rows].map((row) => {
      const text = row.cells[column].textContent.trim();
      return [isTime ? seconds(text) : keyOf(text), row];
    });
    keyed.sort(([a], [b]) => compare(a, b, isUp ? 1 : -1));
    body.append(...keyed.map(([, row]) => row));
  };
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head));
  }
})();
