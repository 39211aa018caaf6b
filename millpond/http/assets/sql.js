// A place to type SQL: the answer as a table, or as bars of its first number; how a statement would run, drawn.

import { post } from "./api.js";
import { $, el, isNumber, shown, svg } from "./dom.js";
import { drawGraph } from "./graph.js";

const MOST = 1000;
let answer = null;

async function ask(path, take) {
  $("sql-error").hidden = $("plan").hidden = true;
  $("sql-about").textContent = "";
  answer = null;
  try {
    take(await post(path, { sql: $("sql").value }));
  } catch (failure) {
    const error = failure.error || { message: String(failure) };
    $("sql-error").textContent = [error.message, error.caret, error.hint && `hint: ${error.hint}`].filter(Boolean).join("\n");
    $("sql-error").hidden = false;
  }
  drawAnswer();
}

export function runSql() {
  const began = performance.now();
  return ask("/sql", (found) => {
    answer = found;
    const what = answer.count === undefined ? `${answer.rows.length} rows` : `${answer.count} rows changed`;
    $("sql-about").textContent = `${what}, ${Math.round(performance.now() - began)} ms`;
  });
}

export function explainSql() {
  return ask("/explain", (found) => {
    drawGraph($("picture"), found, () => {});
    $("plan").querySelector("pre").textContent = found.plan.join("\n");
    $("plan").hidden = false;
  });
}

export function drawAnswer() {
  const columns = answer?.columns || [], rows = (answer?.rows || []).slice(0, MOST);
  const chart = $("shape").value === "chart";
  $("result").hidden = chart;
  $("chart").toggleAttribute("hidden", !chart);
  if (chart) { drawChart(columns, rows); return; }
  $("result").tHead.replaceChildren(el("tr", {}, ...columns.map((c) => el("th", { class: isNumber(c) ? "number" : null, title: c.type }, c.name))));
  $("result").tBodies[0].replaceChildren(...rows.map((row) => el("tr", {}, ...columns.map((c) =>
    el("td", { class: isNumber(c) ? "number" : null }, shown(row[c.name]))))));
}

function drawChart(columns, rows) {
  const value = columns.find((c) => isNumber(c) && c !== columns[0]) || columns.find(isNumber);
  const label = columns.find((c) => c !== value);
  const bars = value ? rows.slice(0, 50).map((r) => [label ? shown(r[label.name]) : "", Number(r[value.name]) || 0]) : [];
  const most = Math.max(1e-9, ...bars.map(([, v]) => Math.abs(v)));
  $("chart").setAttribute("width", 520);
  $("chart").setAttribute("height", Math.max(24, bars.length * 22));
  $("chart").replaceChildren(...(bars.length ? bars.flatMap(([name, v], i) => [
    svg("text", { x: 0, y: i * 22 + 15 }, name.slice(0, 18)),
    svg("rect", { class: v < 0 ? "minus" : null, x: 130, y: i * 22 + 3, width: (Math.abs(v) / most) * 300, height: 16 }),
    svg("text", { class: "soft", x: 436, y: i * 22 + 15 }, shown(v)),
  ]) : [svg("text", { class: "soft", x: 0, y: 15 }, "no number to draw")]));
}
