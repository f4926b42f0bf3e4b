// Elements. Whatever comes from a job is text: nothing here takes markup, and no attribute takes code.

const SVG = "http://www.w3.org/2000/svg";

const setAll = (node, attributes) => {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") {
      for (const [name, listener] of Object.entries(value)) node.addEventListener(name, listener);
    } else if (key.startsWith("on") || key === "style") {
      throw new TypeError(`no attribute ${key}: it would take code`);
    } else if (key === "href" && !/^(#|assets\/|v1\/|openapi\.json$)/.test(value)) {
      throw new TypeError(`no link out of the page: ${value}`);
    } else {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  return node;
};

// make("a", { href: "#/jobs", on: { click } }, "Jobs"): children are nodes, texts, or nothing (null).
export const make = (tag, attributes = {}, ...children) => {
  const node = setAll(document.createElement(tag), attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

export const makeSvg = (tag, attributes = {}, ...children) => {
  const node = setAll(document.createElementNS(SVG, tag), attributes);
  node.append(...children);
  return node;
};

// Changes a text only if it is another one: people may have selected it, or be listening to it.
export const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Puts nodes into an element only if they say something else than what is there.
export const setContent = (node, ...children) => {
  const next = document.createElement(node.localName);
  next.append(...children.flat().filter((child) => child !== null && child !== undefined));
  const old = [...node.childNodes], fresh = [...next.childNodes];
  const same = old.length === fresh.length && old.every((one, index) => one.isEqualNode(fresh[index]));
  if (!same) node.replaceChildren(...fresh);
};

let ids = 0;
export const newId = (name) => `${name}-${++ids}`;

// A table with a caption that is read aloud, and column headings: [["Step", "number"], ["Saved"]].
// Roles are said although they are the elements' own: narrow windows show rows as blocks, which takes them away.
export const makeTable = (caption, columns, rows, attributes = {}) => {
  const heads = columns.map(([name, kind]) => make("th", { scope: "col", role: "columnheader", class: kind }, name));
  const body = make("tbody", { role: "rowgroup" }, ...rows.map((row) => makeRow(columns, row)));
  return make("table", { role: "table", ...attributes },
    make("caption", {}, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)),
    body);
};

export const makeRow = (columns, cells, attributes = {}) => make("tr", { role: "row", ...attributes },
  ...cells.map((cell, index) => {
    const [name, kind] = columns[index], content = Array.isArray(cell) ? cell : [cell];
    return index === 0
      ? make("th", { scope: "row", role: "rowheader", class: kind, "data-label": name }, ...content)
      : make("td", { role: "cell", class: kind, "data-label": name }, ...content);
  }));

// Whatever is wider than the window is scrolled on its own, from the keyboard too.
export const scrollable = (label, ...children) => {
  const node = make("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, ...children);
  new ResizeObserver(() => {
    // What needs no scrolling is no place to stop at.
    const overflows = node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight;
    if (overflows) node.setAttribute("tabindex", "0"); else node.removeAttribute("tabindex");
  }).observe(node);
  return node;
};
