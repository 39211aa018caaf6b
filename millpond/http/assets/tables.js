// One table, live: its rows as they change, searched and sorted here.

import { follow, get, getRows } from "./api.js";
import { $, el, isNumber, shown } from "./dom.js";

const MOST = 500;
let stop = () => {}, columns = [], key = [], rows = new Map(), sort = null, fresh = new Set(), due = false, name = null;
let counter = 0, total = null;

const identity = (row) => (key.length ? JSON.stringify(key.map((k) => row[k])) : String((counter += 1)));

export const current = () => name;

export async function openTable(wanted, trouble) {
  stop();
  name = wanted;
  $("table-name").value = wanted;
  [rows, fresh, sort, total] = [new Map(), new Set(), null, null];
  const path = `/tables/${encodeURIComponent(wanted)}`;
  try {
    const about = await get(path);
    [columns, key] = [about.columns, about.key];
    if (about.kind === "view" || about.rows > 10000) {
      const load = async () => {
        const page = about.kind === "view" ? { rows: [] } : await getRows(`${path}/rows?limit=${MOST}`);
        rows = new Map(page.rows.map((r) => [identity(r), r]));
        total = (await get(path)).rows ?? 0;
        draw();
      };
      await load();
      const timer = setInterval(() => load().catch(trouble), 2000);
      stop = () => clearInterval(timer);
      return;
    }
    stop = follow(`${path}/changes?rows=true&conflate=300ms`, take, trouble);
  } catch (error) { trouble(error); }
}

function take(kind, data) {
  if (kind === "rows") [rows, columns] = [new Map(data.rows.map((r) => [identity(r), r])), data.columns];
  else if (kind === "change") {
    for (const row of data.rows) { const id = identity(row); rows.set(id, row); fresh.add(id); }
    for (const gone of data.deleted) rows.delete(JSON.stringify(key.map((k) => gone[k])));
  }
  if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
}

function compare(a, b) {
  const [x, y] = [a[sort.name], b[sort.name]];
  if (x === y) return 0;
  if (x === null || x === undefined) return 1;
  if (y === null || y === undefined) return -1;
  const order = sort.number ? Number(x) - Number(y) : x < y ? -1 : 1;
  return sort.down ? -order : order;
}

export function draw() {
  const wanted = $("search").value.toLowerCase();
  let found = [...rows].filter(([, row]) => !wanted || columns.some((c) => shown(row[c.name]).toLowerCase().includes(wanted)));
  if (sort) found = found.sort(([, a], [, b]) => compare(a, b));
  $("table-about").textContent = total === null
    ? `${found.length} of ${rows.size} rows${found.length > MOST ? `, the first ${MOST}` : ""}`
    : `${found.length} of the first ${rows.size} of ${total} rows`;
  const click = (c) => () => { sort = { name: c.name, number: isNumber(c), down: sort?.name === c.name && !sort.down }; draw(); };
  const mark = (c) => (sort?.name === c.name ? (sort.down ? " ↓" : " ↑") : "");
  $("rows").tHead.replaceChildren(el("tr", {}, ...columns.map((c) =>
    el("th", { class: isNumber(c) ? "sortable number" : "sortable", title: c.type, onclick: click(c) }, c.name + mark(c)))));
  $("rows").tBodies[0].replaceChildren(...found.slice(0, MOST).map(([id, row]) =>
    el("tr", { class: fresh.has(id) ? "fresh" : null }, ...columns.map((c) =>
      el("td", { class: isNumber(c) ? "number" : null }, shown(row[c.name]))))));
  fresh.clear();
}
