// Links to files of a job. A link carries no token, so that files are fetched with it first.

import { hasToken, send } from "./api.js";
import { make } from "./dom.js";

const KEPT_FOR_MS = 60_000;

const save = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_FOR_MS);
};

// path: of the file, beneath v1/jobs; onProblem(problem): it could not be fetched.
export const downloadLink = (path, name, onProblem) => make("a", {
  href: path,
  download: name.split("/").pop(),
  on: {
    click: async (event) => {
      if (!hasToken()) return;
      event.preventDefault();
      const link = event.currentTarget;
      if (link.getAttribute("aria-busy")) return;
      link.setAttribute("aria-busy", "true");
      try {
        save(await (await send(path)).blob(), link.download);
      } catch (error) {
        onProblem(error);
      } finally {
        link.removeAttribute("aria-busy");
      }
    },
  },
}, name);

const escaped = (part) => String(part).split("/").map(encodeURIComponent).join("/");
export const pathOf = (...parts) => parts.map(escaped).join("/");
