// Asking the server: JSON with exact numbers, errors as they are said, and events that come back by themselves.

let token = sessionStorage.getItem("token") || "";
export const setToken = (given) => { token = given; sessionStorage.setItem("token", given); };

export class ApiError extends Error {
  constructor(status, error) { super(error.message); this.status = status; this.error = error; }
}

// Numbers that JavaScript would round or shorten keep their text.
const exact = (_, value, context) =>
  typeof value === "number" && context && context.source !== String(value) ? context.source : value;
export const parse = (text) => JSON.parse(text, exact);

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok || path === "/ready") return response;
  let error = { message: `${response.status} ${response.statusText}` };
  try { error = (await response.json()).error; } catch { /* not ours */ }
  throw new ApiError(response.status, error);
}

export const get = async (path) => (await request(path)).json();
export const getRows = async (path) => parse(await (await request(path)).text());
export const post = async (path, body) =>
  parse(await (await request(path, { method: "POST", body: body === undefined ? undefined : JSON.stringify(body) })).text());

// Follows events until stop() is called: on(kind, data) for each. Comes back with the last event after a break.
export function follow(path, on, trouble) {
  const ended = new AbortController();
  let last = null;
  const run = async () => {
    while (!ended.signal.aborted) {
      try {
        const headers = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
        const response = await request(path, { headers, signal: ended.signal });
        let text = "";
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          text += value;
          const parts = text.split("\n\n");
          text = parts.pop();
          for (const part of parts) {
            const fields = Object.fromEntries(part.split("\n").map((line) => {
              const at = line.indexOf(": ");
              return [line.slice(0, at), line.slice(at + 2)];
            }));
            if (fields.id) last = fields.id;
            if (fields.event) on(fields.event, parse(fields.data));
          }
        }
      } catch (error) {
        if (ended.signal.aborted) return;
        if (error instanceof ApiError) { trouble(error); return; }
      }
      await new Promise((later) => setTimeout(later, 1000));
    }
  };
  run();
  return () => ended.abort();
}
