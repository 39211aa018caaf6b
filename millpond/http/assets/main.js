// The dashboard: asks again every two seconds, and follows the table that is open.

import { ApiError, get, setToken } from "./api.js";
import { $, el, megabytes, short } from "./dom.js";
import { drawGraph } from "./graph.js";
import { drawPlots } from "./plots.js";
import { drawQueries } from "./queries.js";
import { drawAnswer, explainSql, runSql } from "./sql.js";
import { current, draw, openTable } from "./tables.js";

const PAUSE = 2000;
let samples = [];

function trouble(error) {
  const needsToken = error instanceof ApiError && error.status === 401;
  $("login").hidden = !needsToken;
  $("trouble").hidden = needsToken;
  $("trouble").textContent = error.error?.hint ? `${error.message} (${error.error.hint})` : error.message;
}

function show(name) {
  openTable(name, trouble);
  $("tables-panel").scrollIntoView({ behavior: "smooth", block: "nearest" });
}

async function refresh() {
  const after = samples.length ? samples[samples.length - 1].at : 0;
  const [ready, graph, stats, queries, tables] = await Promise.all(
    [get("/ready"), get("/graph"), get(`/stats?after=${after}`), get("/queries"), get("/tables")]);
  samples = [...samples, ...stats.samples].slice(-300);
  const now = samples[samples.length - 1];
  $("state").textContent = ready.state;
  $("state").className = `badge ${ready.state}`;
  $("state").title = (ready.problems || []).join("\n");
  $("numbers").textContent = now ? `${short(now.rows_per_second)} rows/s · ${short(now.lag)} behind · ${megabytes(now.memory)}` : "";
  drawGraph($("graph"), graph, show);
  drawPlots($("plots"), samples);
  drawQueries(queries.queries, trouble, refresh);
  const names = tables.tables.filter((t) => t.kind === "table").map((t) => t.name);
  const listed = [...$("table-name").options].map((o) => o.value);
  if (names.join() !== listed.join()) {
    $("table-name").replaceChildren(...names.map((n) => el("option", { value: n }, n)));
    if (names.includes(current())) $("table-name").value = current();
    else if (names.length) openTable(names[0], trouble);
  }
  $("trouble").hidden = $("login").hidden = true;
}

async function keepOn() {
  for (;;) {
    try { await refresh(); } catch (error) {
      trouble(error);
      if (!(error instanceof ApiError)) { $("state").textContent = "no answer"; $("state").className = "badge closed"; }
    }
    await new Promise((later) => setTimeout(later, PAUSE));
  }
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--back").trim() === "#10181c";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", dark ? "light" : "dark");
});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value);
  refresh().catch(trouble);
});
$("table-name").addEventListener("change", (event) => openTable(event.target.value, trouble));
$("search").addEventListener("input", draw);
$("run").addEventListener("click", runSql);
$("explain").addEventListener("click", explainSql);
$("shape").addEventListener("change", drawAnswer);
$("sql").value = "SHOW TABLES";
$("sql").addEventListener("keydown", (event) => { if (event.ctrlKey && event.key === "Enter") runSql(); });
keepOn();
