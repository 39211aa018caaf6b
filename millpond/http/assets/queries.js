// The running queries, and holding them.

import { post } from "./api.js";
import { $, el, short } from "./dom.js";

const ACTIONS = { running: ["pause", "stop"], retrying: ["stop"], paused: ["resume", "stop"], stopped: ["start"], failed: ["start"] };
const HEAD = ["query", "state", "rows", "rows/s", "behind", "errors", "last batch", "by Spark", "", "error"];

export function drawQueries(queries, trouble, again) {
  const table = $("queries");
  table.tHead.replaceChildren(el("tr", {}, ...HEAD.map((h, at) => el("th", { class: at > 1 && at < 8 ? "number" : null }, h))));
  table.tBodies[0].replaceChildren(...queries.map((q) => {
    const act = (action) => el("button", {
      onclick: () => post(`/queries/${encodeURIComponent(q.name)}/${action}`).then(again, trouble),
    }, action);
    const buttons = q.live ? [] : (ACTIONS[q.state] || []).map(act);
    const number = (value) => el("td", { class: "number" }, short(value));
    return el("tr", { "data-name": q.name, "data-state": q.state },
      el("td", { title: q.statement || "" }, q.name), el("td", {}, el("span", { class: `badge ${q.state}` }, q.state)),
      number(q.rows), number(q.rate), number(q.lag), number(q.errors),
      el("td", { class: "number" }, q.last_batch_ms === null || q.last_batch_ms === undefined ? "–" : `${q.last_batch_ms} ms`),
      el("td", { class: "number", title: `batches that Spark evaluated, of all; rows: ${short(q.spark_rows)} by Spark, ${short(q.process_rows)} in process` },
        q.spark_batches === null || q.spark_batches === undefined ? "–" : `${short(q.spark_batches)} of ${short(q.batches)}`),
      el("td", {}, ...buttons), el("td", { class: "error" }, q.error || ""));
  }));
}
