"use strict";
// Draws the plots anew at their size on the screen, and lets people read, smooth, scale and enlarge them. Without this
// script the page shows the same curves as they were drawn when it was written.
(() => {
  const source = document.getElementById("data");
  if (!source) return;
  const found = JSON.parse(source.textContent);
  const field = (id) => document.getElementById(id);
  for (const plot of found.plots) {
    for (const curve of plot.curves) {
      for (const name of ["steps", "mean_steps", "nonfinite"]) curve[name] = scales.sums(curve[name]);
    }
  }
  const last = Math.max(1, found.last_step);
  const view = {
    from: 0, to: last, last, log: false, dotted_up_to: found.dotted_up_to,
    checkpoints: scales.sums(found.checkpoints), best: [], attempts: found.attempts,
  };
  const names = ["from", "to", "smoothing", "log", "reset", "find"];
  const gallery = new Gallery(view, Object.fromEntries(names.map((name) => [name, field(name)])));
  for (const figure of document.querySelectorAll(".plot")) {
    const svg = figure.querySelector("svg");
    // Its title would cover the curves as a tooltip.
    svg.querySelector("title").remove();
    svg.removeAttribute("aria-labelledby");
    gallery.add(figure, found.plots[Number(figure.dataset.plot)]);
  }
  field("find").addEventListener("input", (event) => {
    if (event.target.value.trim() && field("more-plots")) field("more-plots").open = true;
  });
  window.addEventListener("beforeprint", () => gallery.drawAll());
  field("controls").hidden = false;
})();
