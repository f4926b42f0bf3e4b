"use strict";
// Sorts the table of trials, and shows a trial everywhere when one points at it. Without this script all is there as
// well.
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
