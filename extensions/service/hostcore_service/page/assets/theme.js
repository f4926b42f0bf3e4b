"use strict";
// Light or dark, as the user has chosen. Runs before the page is drawn, so that it does not flash.
(() => {
  let chosen = null;
  // A browser may forbid it; then the system's holds.
  try { chosen = localStorage.getItem("hostcore.theme"); } catch { chosen = null; }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
