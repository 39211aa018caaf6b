// The last ten minutes as small plots.

import { el, megabytes, short, svg } from "./dom.js";

const PLOTS = [
  ["rows/s", "rows_per_second", short],
  ["batch", "batch_ms", (v) => `${short(v)} ms`],
  ["rows behind", "lag", short],
  ["memory", "memory", megabytes],
  ["error records", "errors", short],
];

function line(values) {
  const most = Math.max(...values, 1e-9);
  const step = 300 / Math.max(1, values.length - 1);
  return values.map((v, i) => `${i ? "L" : "M"}${(i * step).toFixed(1)} ${(58 - (v / most) * 54).toFixed(1)}`).join("");
}

export function drawPlots(target, samples) {
  target.replaceChildren(...PLOTS.map(([title, name, text]) => {
    const values = samples.map((s) => s[name] || 0);
    const last = values.length ? values[values.length - 1] : null;
    return el("div", { class: "plot", "data-name": name }, el("b", {}, last === null ? "–" : text(last)), title,
      svg("svg", { viewBox: "0 0 300 60", preserveAspectRatio: "none" }, svg("path", { d: line(values) })));
  }));
}
