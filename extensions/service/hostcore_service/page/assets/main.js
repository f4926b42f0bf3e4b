// Which page is shown: the part of the address behind #.

import { askWith } from "./api.js";
import { askForToken } from "./dialogs.js";
import { JobPage } from "./job.js";
import { JobsPage } from "./jobs.js";
import { PluginsPage } from "./plugins.js";
import { SubmitPage } from "./submit.js";
import { make } from "./dom.js";
import { tellTimesAnew } from "./words.js";

const THEME = "hostcore.theme";
const main = document.getElementById("main");
let shown = null;

// A page has: title, heading (an h1), node, open(query), close(); with `takes(query)` it shows another query itself.
class NoPage {
  title = "Not found";
  heading = make("h1", { tabindex: "-1" }, "There is no such page");
  node = make("div", {}, this.heading, make("p", {}, make("a", { href: "#/jobs" }, "All jobs")));
  open() {}
  close() {}
}

// What other distributions add, by name: their modules, each with pageOf(parts).
const sections = new Map();

const loadSections = async () => {
  let known = [];
  try { known = await (await fetch("assets/sections.json")).json(); } catch { /* The page has what it has itself. */ }
  await Promise.all(known.map(async ({ name }) => {
    try { sections.set(name, await import(`./${name}/page.js`)); } catch (error) { console.error(error); }
  }));
  const list = document.querySelector("nav ul");
  for (const { name, title } of known.filter((one) => sections.has(one.name))) {
    list.insertBefore(make("li", {}, make("a", { href: `#/${name}` }, title)), list.children[1]);
  }
};

const decoded = (part) => { try { return decodeURIComponent(part); } catch { return null; } };

const pageOf = (path) => {
  const [first, second, ...rest] = path.split("/").slice(1);
  if (sections.has(first)) {
    const parts = (second === undefined ? [] : [second, ...rest]).map(decoded);
    return (parts.includes(null) ? null : sections.get(first).pageOf(parts)) ?? new NoPage();
  }
  if (rest.length) return new NoPage();
  if (first === "jobs" && second) {
    try { return new JobPage(decodeURIComponent(second)); } catch { return new NoPage(); }
  }
  const pages = { "": JobsPage, jobs: JobsPage, plugins: PluginsPage, submit: SubmitPage };
  return !second && Object.hasOwn(pages, first) ? new pages[first]() : new NoPage();
};

const show = () => {
  const [path, query = ""] = (location.hash.slice(1) || "/jobs").split("?");
  const asked = new URLSearchParams(query);
  if (shown?.path === path) { shown.page.open(asked); return; }
  const isFirst = shown === null;
  shown?.page.close();
  shown = { path, page: pageOf(path) };
  document.title = `${shown.page.title} · hostcore`;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = `${path}/`.startsWith(`${link.hash.slice(1)}/`) || (link.hash === "#/jobs" && path === "/");
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  main.replaceChildren(shown.page.node);
  scrollTo(0, 0);
  if (!isFirst) shown.page.heading.focus();
  shown.page.open(asked);
};

const chooseTheme = () => {
  const field = document.getElementById("theme"), root = document.documentElement;
  field.value = root.dataset.theme ?? "";
  field.addEventListener("change", () => {
    if (field.value) root.dataset.theme = field.value; else delete root.dataset.theme;
    try {
      if (field.value) localStorage.setItem(THEME, field.value); else localStorage.removeItem(THEME);
    } catch { /* It holds until the page is left. */ }
  });
};

askWith(askForToken);
chooseTheme();
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
  main.scrollIntoView();
});
setInterval(tellTimesAnew, 1000);
await loadSections();
addEventListener("hashchange", show);
show();
