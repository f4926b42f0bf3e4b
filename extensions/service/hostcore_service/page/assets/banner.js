// What went wrong, where it is seen and heard, with a way to try again.

import { make } from "./dom.js";

export class Banner {
  constructor() {
    this.node = make("div", { class: "banner", role: "alert" });
  }

  // retry: called when the user wants to try again; without it the banner can be closed.
  show(message, retry) {
    if (this.message === message) return;
    this.message = message;
    const button = retry
      ? make("button", { type: "button", class: "small", on: { click: () => { this.clear(); retry(); } } }, "Try again")
      : make("button", { type: "button", class: "small", on: { click: () => this.clear() } }, "Close");
    this.node.replaceChildren(make("span", {}, message), button);
  }

  clear() {
    this.message = undefined;
    this.node.replaceChildren();
  }
}

export const announce = (text) => { document.getElementById("announcer").textContent = text; };

// A message as a sentence of its own.
export const sentence = (text) => {
  if (!text) return "";
  return text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
};
