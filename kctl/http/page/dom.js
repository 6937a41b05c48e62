// Elements, tables and how values are written: unknown is "-", never 0; what comes from a cluster is only ever text.
export const el = id => document.getElementById(id);

export const isUnknown = value => value === null || value === undefined;
const grouped = new Intl.NumberFormat("en");
export const whole = value => isUnknown(value) ? "-" : grouped.format(Math.round(value));
export function seconds(value) {
  if (isUnknown(value)) return "-";
  if (value > 0 && value < 0.1) return (value * 1000).toFixed(0) + " ms";
  if (value < 10) return value.toFixed(1) + " s";
  if (value < 120) return value.toFixed(0) + " s";
  if (value < 7200) return (value / 60).toFixed(0) + " min";
  return (value / 3600).toFixed(1) + " h";
}
export function bytes(value) {
  if (isUnknown(value)) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return value.toFixed(unit ? 1 : 0) + " " + units[unit];
}
export const rate = value => isUnknown(value) ? "-" : (value > 0 ? "+" : "") + value.toFixed(1) + "/s";
export const text = value => isUnknown(value) || value === "" ? "-" : String(value);
export const clock = unix => new Date(unix * 1000).toISOString().slice(11, 19) + "Z";
// What would steer a screen is shown by its number.
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
export const visible = value => text(value).replace(steering, each => "\\u" + each.charCodeAt(0).toString(16).padStart(4, "0"));

export function make(name, properties = {}, ...children) {
  const found = document.createElement(name);
  Object.assign(found, properties);
  found.append(...children);
  return found;
}
const WELL = new Set(["ok", "idle", "elsewhere", "running"]);
export const isWell = word => WELL.has(word);
export function badge(word) {
  return make("span", {className: "badge " + (/^[a-z_]+$/.test(word || "") ? word : "unknown"), textContent: text(word)});
}
export function button(label, press) {
  const found = make("button", {type: "button", textContent: label});
  found.addEventListener("click", press);
  return found;
}
export function set(id, value) { if (el(id).textContent !== value) el(id).textContent = value; }
export function numbers(id, pairs) {
  const same = [...el(id).querySelectorAll("dt")].map(each => each.textContent).join("\n") === pairs.map(([name]) => name).join("\n");
  if (!same) {
    el(id).replaceChildren(...pairs.map(([name]) => {
      const shown = make("dd");
      shown.dataset.number = name;
      return make("div", {}, make("dt", {textContent: name}), shown);
    }));
  }
  const shown = el(id).querySelectorAll("dd");
  pairs.forEach(([, value], number) => { if (shown[number].textContent !== value) shown[number].textContent = value; });
}

// A column has a name and shows a row as text (`isCut`: what is too long is cut off) or an element; with `href` as a link, which stays while its row does.
function fill(cell, column, of) {
  const value = column.show(of), href = value === "-" ? null : column.href?.(of);
  if (href) {
    if (!cell.firstElementChild) cell.replaceChildren(make("a"));
    const link = cell.firstElementChild;
    if (link.textContent !== value) link.textContent = value;
    if (link.getAttribute("href") !== href) link.setAttribute("href", href);
  } else if (value instanceof Node) {
    const old = cell.firstChild;
    if (old !== value && !(value.className === old?.className && value.matches(".badge") && value.isEqualNode(old))) cell.replaceChildren(value);
  } else if (cell.textContent !== value || cell.firstElementChild) {
    cell.textContent = value;
    if (column.isCut) cell.title = value;
  }
}
// Its name is shown where a row is too narrow for a line of its own (page.css).
function cellOf(row, {name, number}) {
  const cell = row.insertCell();
  cell.dataset.name = name;
  if (number) cell.className = "number";
  return cell;
}
function write(row, columns, of) {
  waiting.delete(row);
  columns.forEach((column, place) => {
    const cell = row.cells[place] || cellOf(row, column);
    fill(cell, column, of);
  });
}
// Of a long table, rows that are far from the screen are written when they come near it, and with each tenth call.
const MOST_WRITTEN = 100, WHOLE_EACH = 10, far = new WeakSet(), waiting = new WeakMap(), calls = new WeakMap();
const near = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) {
    far[isIntersecting ? "delete" : "add"](target);
    if (isIntersecting) waiting.get(target)?.();
  }
}, {rootMargin: "50%"});
export function body(table, columns, rows, keyOf) {
  const all = table.tBodies[0], known = new Map([...all.rows].map(row => [row.dataset.key, row]));
  const call = (calls.get(table) || 0) + 1, isWhole = rows.length <= MOST_WRITTEN || call % WHOLE_EACH === 0;
  calls.set(table, call);
  rows.forEach((of, number) => {
    const key = keyOf(of);
    let row = known.get(key);
    known.delete(key);
    if (!row) { row = make("tr"); row.dataset.key = key; near.observe(row); }
    if (all.rows[number] !== row) all.insertBefore(row, all.rows[number] || null);
    if (!isWhole && far.has(row)) waiting.set(row, () => write(row, columns, of));
    else write(row, columns, of);
  });
  known.forEach(row => { near.unobserve(row); row.remove(); });
}
// `sorted` is called with the column that was pressed, and whether its greatest comes first.
export function head(table, columns, sorted) {
  const row = table.tHead.insertRow();
  let by = null, down = false;
  for (const column of columns) {
    const cell = row.appendChild(make("th", {scope: "col", className: column.number ? "number" : ""}));
    if (!sorted || !column.by) { cell.textContent = column.name; continue; }
    cell.append(button(column.name, () => {
      down = by === column ? !down : Boolean(column.number && column.name !== "partition");
      by = column;
      for (const other of row.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      sorted(column, down);
    }));
  }
}
// What is not known comes last, whichever way it is sorted.
export const compared = (by, down) => (one, other) => {
  const [a, b] = [by(one), by(other)];
  if (a === b) return 0;
  if (isUnknown(a)) return 1;
  if (isUnknown(b)) return -1;
  return (a < b ? -1 : 1) * (down ? -1 : 1);
};

const SVG = "http://www.w3.org/2000/svg";
export function line(values, label) {
  const svg = document.createElementNS(SVG, "svg"), width = Math.max(60, values.length);
  const most = Math.max(1, ...values.filter(value => value !== null)), step = values.length > 30 ? 1 : width / Math.max(values.length, 1);
  let path = "", pen = false;
  values.forEach((value, number) => {
    if (value === null) { pen = false; return; }
    path += (pen ? "L" : "M") + (width - (values.length - number - 0.5) * step) + " " + (19 - 18 * value / most).toFixed(2);
    if (!pen) path += "h0.01";
    pen = true;
  });
  const given = {class: "line", viewBox: "0 0 " + width + " 20", preserveAspectRatio: "none", role: "img", "aria-label": label};
  for (const [name, value] of Object.entries(given)) svg.setAttribute(name, value);
  svg.appendChild(document.createElementNS(SVG, "path")).setAttribute("d", path);
  return svg;
}
