// Requests to the service, with the user's token; and streams of it that are taken up again where they broke off.

const KEY = "hostcore.token";
const HEADER = "X-TRAINER-TOKEN";

export class Problem extends Error {
  constructor(message, { status = 0, errors = [], retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { status, errors, retryAfter });
  }
}

let ask = () => Promise.reject(new Problem("the service wants a token"));
let asking = null;

// asker(message): a promise of what the user has entered.
export const askWith = (asker) => { ask = asker; };
export const hasToken = () => sessionStorage.getItem(KEY) !== null;
export const forgetToken = () => sessionStorage.removeItem(KEY);

const headersWith = (more) => {
  const token = sessionStorage.getItem(KEY);
  return { ...more, ...(token === null ? {} : { [HEADER]: token }) };
};

const problemOf = async (response) => {
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  let found = null;
  try { found = await response.json(); } catch { /* A proxy's page, for example: its status says what can be said. */ }
  const message = found?.detail || `the service answered ${response.status} ${response.statusText}`.trim();
  return new Problem(message, { status: response.status, errors: found?.errors || [], retryAfter });
};

// All requests that meet a closed door wait for the same answer of the user.
const askOnce = (message) => {
  asking ??= ask(message).then((token) => sessionStorage.setItem(KEY, token)).finally(() => { asking = null; });
  return asking;
};

// The response to a request. Throws a Problem unless it went well, and an AbortError when it was given up.
export const send = async (path, { headers = {}, ...options } = {}) => {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    let response;
    try {
      response = await fetch(path, { ...options, headers: headersWith(headers), cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("the service cannot be reached");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await problemOf(response);
    // A token may have been entered meanwhile.
    if (token !== sessionStorage.getItem(KEY)) continue;
    await askOnce(token === null ? "" : "The service does not accept this token.");
  }
};

export const get = async (path, options) => (await send(path, options)).json();

export const post = async (path, body, { headers = {}, ...options } = {}) => {
  const json = typeof body === "string" ? body : body === undefined ? undefined : JSON.stringify(body);
  const all = { "Content-Type": "application/json", ...headers };
  return (await send(path, { method: "POST", body: json, headers: all, ...options })).json();
};

// Server-sent events of a response: { id, event, data }.
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", one = { event: "message", data: [] }, id = null;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.map((text) => (text.endsWith("\r") ? text.slice(0, -1) : text))) {
        if (line === "") {
          if (one.data.length) yield { id, event: one.event, data: one.data.join("\n") };
          one = { event: "message", data: [] };
          continue;
        }
        const colon = line.indexOf(":"), field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") one.event = text;
        else if (field === "data") one.data.push(text);
        else if (field === "id") id = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const pause = (seconds, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, seconds * 1000);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

const untilSeen = (signal) => new Promise((resolve) => {
  if (!document.hidden) { resolve(); return; }
  const look = () => { if (!document.hidden || signal.aborted) done(); };
  const done = () => { document.removeEventListener("visibilitychange", look); resolve(); };
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", done, { once: true });
});

// Follows a stream until the service says that it is over. While the page is hidden it is let go: a browser keeps few
// connections to one service, for all of its windows.
// onEvent({ event, data }); onState("open" | "broken" | "refused" | "over", problem); it ends with the last two.
export const follow = async (path, { signal, onEvent, onState = () => {} }) => {
  let last = null, failures = 0;
  while (!signal.aborted) {
    await untilSeen(signal);
    const mine = new AbortController();
    const stop = () => { if (signal.aborted || document.hidden) mine.abort(); };
    signal.addEventListener("abort", stop, { once: true });
    document.addEventListener("visibilitychange", stop);
    try {
      if (signal.aborted) return;
      const headers = { Accept: "text/event-stream", ...(last === null ? {} : { "Last-Event-ID": last }) };
      const response = await send(path, { headers, signal: mine.signal });
      onState("open");
      for await (const one of readEvents(response)) {
        failures = 0;
        if (one.id !== null) last = one.id;
        if (one.event === "end") { onState("over"); return; }
        onEvent(one);
      }
      failures += 1;
    } catch (error) {
      if (signal.aborted) return;
      if (error.name !== "AbortError") {
        failures += 1;
        onState("broken", error);
        if (error.status >= 400 && error.status < 500 && error.status !== 429) { onState("refused", error); return; }
      }
    } finally {
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", stop);
    }
    if (failures) await pause(Math.min(15, 2 ** (failures - 1)), signal);
  }
};
