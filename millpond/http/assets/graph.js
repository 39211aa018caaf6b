// The graph of sources, streams, queries, tables and sinks: layers from left to right, states in colour, rates on edges.

import { short, svg } from "./dom.js";

const WIDTH = 170, HEIGHT = 44, GAP_Y = 16;
const GOOD = ["running", "healthy", "static"], BAD = ["failed", "missing", "disconnected"];
const colour = (state) => (!state ? "" : GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "wait");

const cut = (text, most) => (text.length <= most ? text
  : text.includes("://") ? `…${text.slice(1 - most)}` : `${text.slice(0, most - 1)}…`);

export function drawGraph(target, graph, onTable) {
  const GAP_X = graph.edges.some((e) => e.label) ? 150 : 90;
  const place = new Map(graph.nodes.map((node) =>
    [node.id, [node.column * (WIDTH + GAP_X) + 4, node.row * (HEIGHT + GAP_Y) + 4]]));
  const wide = (Math.max(-1, ...graph.nodes.map((n) => n.column)) + 1) * (WIDTH + GAP_X) - GAP_X + 8;
  const high = (Math.max(0, ...graph.nodes.map((n) => n.row)) + 1) * (HEIGHT + GAP_Y) + 8;
  target.setAttribute("width", Math.max(wide, 10));
  target.setAttribute("height", high);
  target.replaceChildren(
    ...graph.edges.flatMap((edge) => {
      const [x1, y1] = place.get(edge.from), [x2, y2] = place.get(edge.to);
      const a = x1 + WIDTH, b = y1 + HEIGHT / 2, c = x2, d = y2 + HEIGHT / 2, m = (a + c) / 2;
      const said = edge.label || (edge.rate ? `${short(edge.rate)}/s` : "");
      const rate = said ? svg("text", { class: "soft", x: m, y: (b + d) / 2 - 4, "text-anchor": "middle" }, cut(said, 24), svg("title", {}, said)) : null;
      return [svg("path", { class: "edge", d: `M${a} ${b}C${m} ${b} ${m} ${d} ${c} ${d}` }), rate].filter(Boolean);
    }),
    ...graph.nodes.map((node) => {
      const [x, y] = place.get(node.id);
      const rows = node.rows === null || node.rows === undefined ? "" : ` · ${short(node.rows)} rows`;
      return svg("g", {
        class: `node ${node.kind} ${colour(node.state)}`, "data-id": node.id, "data-state": node.state || "",
        transform: `translate(${x} ${y})`, onclick: node.kind === "table" ? () => onTable(node.name) : () => {},
      },
      svg("title", {}, [node.name, node.state, node.error || node.reason, node.statement].filter(Boolean).join("\n")),
      svg("rect", { width: WIDTH, height: HEIGHT, rx: node.kind === "query" ? 20 : 6 }),
      svg("text", { x: 12, y: 18 }, cut(node.name, 21)),
      svg("text", { class: "soft", x: 12, y: 34 }, cut(`${node.kind}${node.state ? ` · ${node.state}` : ""}${rows}`, 28)));
    }),
  );
}
