// Small pieces of page. Data only ever becomes text, never markup.

export const $ = (id) => document.getElementById(id);

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

export const shown = (value) =>
  value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value);

const NUMBERS = /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/;
export const isNumber = (column) => NUMBERS.test(column.type);

export function short(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (Math.abs(number) >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return Number.isInteger(number) ? String(number) : number.toFixed(1);
}

export const megabytes = (bytes) => `${(bytes / 1048576).toFixed(0)} MB`;
