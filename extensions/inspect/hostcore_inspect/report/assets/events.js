"use strict";
// Filters the events, and opens what is closed for printing.
(() => {
  document.documentElement.classList.add("script");
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  window.addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

  const controls = document.getElementById("event-controls");
  if (!controls) return;
  const text = document.getElementById("find-event"), told = document.getElementById("events-shown");
  const boxes = [...controls.querySelectorAll("input[type=checkbox]")];
  const rows = [...document.querySelectorAll("#events tbody tr")];
  const contents = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    const kinds = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    rows.forEach((row, index) => {
      row.hidden = !(kinds.has(row.dataset.kind) && contents[index].includes(wanted));
      count += row.hidden ? 0 : 1;
    });
    told.textContent = `${count.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} shown`;
  };
  text.addEventListener("input", filter);
  for (const box of boxes) box.addEventListener("change", filter);
  filter();
  controls.hidden = false;
})();
