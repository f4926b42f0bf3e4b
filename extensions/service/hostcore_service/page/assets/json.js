// JSON for people: coloured, and where in a text a JSON pointer points to.

import { make } from "./dom.js";

const TOKENS = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
const MOST_COLOURED = 200_000;

// A value as nodes.
export const coloured = (value) => {
  const text = JSON.stringify(value, null, 2) ?? "";
  if (text.length > MOST_COLOURED) return [text];
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const [whole, string, colon, number] = found;
    nodes.push(text.slice(end, found.index));
    const kind = colon ? "json-key" : string ? "json-string" : number ? "json-number" : "json-word";
    nodes.push(make("span", { class: kind }, string ?? whole), colon ?? "");
    end = found.index + whole.length;
  }
  nodes.push(text.slice(end));
  return nodes;
};

// A reader of JSON that notes where every value begins; it stops where the text is none.
class Places {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.places = new Map();
  }

  skip() { while (/\s/.test(this.text[this.at] ?? "")) this.at += 1; }

  take(sign) {
    this.skip();
    if (this.text[this.at] !== sign) return false;
    this.at += 1;
    return true;
  }

  string() {
    const begin = this.at;
    for (this.at += 1; this.at < this.text.length; this.at++) {
      if (this.text[this.at] === "\\") this.at += 1;
      else if (this.text[this.at] === '"') { this.at += 1; return JSON.parse(this.text.slice(begin, this.at)); }
    }
    throw new SyntaxError("a string without an end");
  }

  value(pointer, depth = 0) {
    this.skip();
    if (!this.places.has(pointer)) this.places.set(pointer, this.at);
    if (depth > 64) throw new SyntaxError("too deep");
    const sign = this.text[this.at];
    if (sign === "{") this.object(pointer, depth);
    else if (sign === "[") this.list(pointer, depth);
    else if (sign === '"') this.string();
    else {
      const found = /^[^\s,\]}]+/.exec(this.text.slice(this.at, this.at + 400));
      if (!found) throw new SyntaxError("no value");
      this.at += found[0].length;
    }
  }

  object(pointer, depth) {
    this.at += 1;
    if (this.take("}")) return;
    do {
      this.skip();
      if (this.text[this.at] !== '"') throw new SyntaxError("no key");
      const begin = this.at, key = this.string();
      const inner = `${pointer}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
      this.places.set(inner, begin);
      if (!this.take(":")) throw new SyntaxError("no colon");
      this.value(inner, depth + 1);
    } while (this.take(","));
    if (!this.take("}")) throw new SyntaxError("no end");
  }

  list(pointer, depth) {
    this.at += 1;
    if (this.take("]")) return;
    let index = 0;
    do { this.value(`${pointer}/${index++}`, depth + 1); } while (this.take(","));
    if (!this.take("]")) throw new SyntaxError("no end");
  }
}

// The line, from 1, that a JSON pointer points to; for a key that is missing, that of what it is missing in.
export const lineOf = (text, pointer) => {
  const reader = new Places(text);
  try { reader.value(""); } catch (error) { if (!(error instanceof SyntaxError)) throw error; }
  for (let one = pointer; ; one = one.slice(0, one.lastIndexOf("/"))) {
    const place = reader.places.get(one);
    if (place !== undefined) return text.slice(0, place).split("\n").length;
    if (!one.includes("/")) return null;
  }
};
