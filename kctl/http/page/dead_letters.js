// Dead letters: grouped, found, read, requeued, sent to a topic, deleted. What a message holds is only ever text.
import {body, button, el, head, line, numbers, set, visible, whole} from "./dom.js";
import {asked, call, get, guarded, onSign, read} from "./session.js";

const CLASSES_MS = 15000, PAGE_ROWS = 100, MOST_CHARACTERS = 100000, ROOT = "/api/v1/dead-letters";
const dead = {filter: {}, search: null, count: 0, groups: [], rows: [], next: null, looking: false, chosen: new Set(), stop: null};
const status = value => set("dead-status", value);
const tried = work => guarded(work, "dead-status");
const box = row => {
  const found = document.createElement("input");
  found.type = "checkbox";
  found.checked = dead.chosen.has(row.id);
  found.ariaLabel = "choose " + row.id;
  found.addEventListener("change", () => { dead.chosen[found.checked ? "add" : "delete"](row.id); showButtons(); });
  return found;
};
const GROUPS = [
  {name: "count", number: true, show: row => whole(row.count)},
  {name: "last 24 hours", show: row => line(row.hours, "died in each of the last 24 hours, at most " + whole(Math.max(0, ...row.hours)))},
  {name: "last died", show: row => row.last_died},
  {name: "line", show: row => visible(row.line)},
  {name: "", show: row => button("Choose", () => chooseGroup(row))},
  {name: "error class", show: row => visible(row.error_class)},
];
const CLASSES = [
  {name: "error class", show: row => visible(row.error_class)},
  {name: "count", number: true, show: row => whole(row.count)},
  {name: "last died", show: row => row.last_died},
];
const LIST = [
  {name: "", show: box},
  {name: "", show: row => button("Show", () => tried(() => showOne(row.id)))},
  {name: "topic", show: row => visible(row.topic)},
  {name: "partition", number: true, show: row => String(row.partition)},
  {name: "offset", number: true, show: row => String(row.offset)},
  {name: "tries", number: true, show: row => String(row.tries)},
  {name: "died", show: row => row.died},
  {name: "key", show: row => visible(row.key)},
  {name: "error", show: row => visible(row.error)},
];

const query = (filter, more) => "?" + new URLSearchParams({...filter, ...more});
// What is changed is what is shown: filter, count and rows are taken over together, and of two searches the later. What no
// index finds is looked for page by page and counted meanwhile, until there is a page of rows; a new search or Stop ends it.
async function look(work) {
  dead.search?.abort();
  const search = dead.search = new AbortController();
  dead.looking = true;
  try { await work(search.signal); } catch (error) {
    search.abort();
    if (search === dead.search) throw error;
  } finally {
    if (search === dead.search) { dead.looking = false; showGroups(dead.groups); showButtons(); }
  }
}
const find = (filter = dead.filter) => look(async signal => {
  const page = await read(ROOT + query(filter, {limit: PAGE_ROWS}), signal);
  Object.assign(dead, {filter, count: null, groups: [], rows: []});
  dead.chosen.clear();
  list(page);
  status("counting what matches …");
  await Promise.all([count(signal), fill(PAGE_ROWS, signal)]);
  status(whole(dead.count) + (dead.count === 1 ? " dead letter matches" : " dead letters match"));
});
async function count(signal) {
  const groups = await read(ROOT + "/groups" + query(dead.filter, {hours: 24}), signal);
  [dead.count, dead.groups] = [groups.count, groups.rows];
  showGroups(dead.groups);
  showButtons();
}
async function fill(rows, signal) {
  while (dead.next !== null && dead.rows.length < Math.min(rows, dead.count ?? Infinity))
    list(await read(ROOT + query(dead.filter, {limit: rows - dead.rows.length, after: dead.next}), signal));
}
function list(page) {
  dead.rows.push(...page.rows);
  dead.next = page.next;
  body(el("dead-list"), LIST, dead.rows, row => row.id);
  showButtons();
}
const showGroups = groups => body(el("dead-groups"), GROUPS, groups.slice(0, PAGE_ROWS), row => row.error_class + " " + row.line);
function showButtons() {
  for (const each of document.querySelectorAll("button[data-verb]")) {
    const isAll = each.dataset.which === "all", count = isAll ? dead.count : dead.chosen.size;
    each.textContent = VERBS[each.dataset.verb].label + (isAll ? "all " : "chosen ") + (count === null ? "" : whole(count));
    each.disabled = !count || dead.stop !== null;
  }
  el("dead-stop").hidden = dead.stop === null && !dead.looking;
  el("dead-more").hidden = dead.looking || dead.next === null || dead.rows.length >= (dead.count ?? Infinity);
}
const filled = () => Object.fromEntries([...new FormData(el("dead-filter"))].filter(([, value]) => value !== ""));
function chooseGroup(row) {
  el("dead-filter").elements.error_class.value = row.error_class;
  el("dead-filter").elements.line.value = row.line;
  tried(() => find({...filled(), error_class: row.error_class, line: row.line}));
}
async function showOne(id) {
  const one = await read(ROOT + "/" + encodeURIComponent(id) + "?as=" + el("dead-as").value);
  const bytesOf = (of, name) => {
    const known = Object.keys(of).find(each => each === name || each.startsWith(name + "_"));
    if (known === undefined || of[known] === null) return "null";
    return known.endsWith("_json") ? JSON.stringify(of[known], null, 2) : (known.endsWith("_base64") ? "base64: " : "") + of[known];
  };
  const shownOf = name => {
    const more = one[name + "_schema"] ?? one[name + "_error"];
    const isDecoded = name + "_decoded" in one && el("dead-as").value !== "hex";
    return (isDecoded ? JSON.stringify(one[name + "_decoded"], null, 2) : bytesOf(one, name)) + (more ? "\n" + more : "");
  };
  const value = one.damaged ? "a damaged block, as base64: " + one.block_base64 : shownOf("value");
  const cut = value.length > MOST_CHARACTERS ? "\n… " + whole(value.length - MOST_CHARACTERS) + " characters more; an export has them" : "";
  numbers("dead-fields", [
    ["topic", visible(one.topic)], ["partition", String(one.partition)], ["offset", String(one.offset)], ["tries", String(one.tries)], ["died", one.died],
    ["key", visible(shownOf("key")).slice(0, 1000)],
    ...(one.headers || []).slice(0, 100).map(each => [visible(each.key), visible(bytesOf(each, "value")).slice(0, 1000)]),
  ]);
  set("dead-value", visible(value.slice(0, MOST_CHARACTERS)) + cut);
  set("dead-trace", visible(one.error) + (one.traceback ? "\n" + visible(one.traceback) : ""));
  el("dead-one").hidden = false;
  el("dead-one").dataset.id = id;
  el("dead-one").focus();
}
const VERBS = {
  requeue: {label: "Requeue ", will: "requeued, to be handled once more", done: "requeued"},
  send: {label: "Send ", will: "sent to a topic, and are gone here once the brokers have them", done: "sent"},
  delete: {label: "Delete ", will: "deleted for good", done: "deleted"},
};
async function change(verb, which) {
  const filter = which === "all" ? {...dead.filter} : {ids: [...dead.chosen]}, count = which === "all" ? dead.count : dead.chosen.size;
  for (const name of ["partition", "tries_from"]) if (name in filter) filter[name] = Number(filter[name]);
  const {will, done} = VERBS[verb], toTopic = verb === "send", search = dead.search;
  const by = which === "all" ? Object.entries(filter).map(([name, value]) => " " + name + " " + visible(value)).join(",") : "";
  if (!await asked(whole(count) + " dead letters" + (by && " (" + by.trim() + ")") + " will be " + will + ". If another number matches by now, nothing happens.", toTopic)) return;
  dead.stop = new AbortController();
  showButtons();
  let last = {done: 0};
  try {
    for await (const step of steps(await call(ROOT + "/" + verb, {filter, count, ...(toTopic ? {to: el("to").value} : {})}, dead.stop.signal))) {
      last = {...last, ...step};
      status(whole(last.done) + " of " + whole(count) + " " + done + (last.complete ? "" : " …"));
    }
    if (last.error) status("after " + whole(last.done) + ": " + last.error.message);
  } catch (error) {
    status((error.name === "AbortError" ? "stopped" : error.message) + (last.done ? " (after " + whole(last.done) + ")" : ""));
  } finally { dead.stop = null; }
  const outcome = el("dead-status").textContent;
  el("dead-one").hidden = true;
  if (search === dead.search) await find(); else showButtons();
  status(outcome);
}
async function* steps(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const each of lines) yield JSON.parse(each);
  }
}
async function save() {
  const link = document.createElement("a");
  const blob = await (await call(ROOT + "/export" + query(dead.filter, {}))).blob();
  const last = (await blob.slice(-10000).text()).trimEnd().split("\n").at(-1);
  if (last.startsWith('{"error": {')) throw new Error("nothing is saved, the export broke off: " + JSON.parse(last).error.message);
  link.href = URL.createObjectURL(blob);
  link.download = "dead-letters.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
}

// What was begun last: a change before a search beside it.
function stop() { (dead.stop || dead.search)?.abort(); }
function forget() {
  stop();
  Object.assign(dead, {filter: {}, search: null, count: 0, groups: [], rows: [], next: null, looking: false});
  dead.chosen.clear();
  for (const field of el("dead-filter").querySelectorAll("input")) field.value = "";
  el("dead-one").hidden = true;
  for (const id of ["dead-list", "dead-groups"]) el(id).tBodies[0].replaceChildren();
  for (const id of ["dead-value", "dead-trace", "dead-status"]) set(id, "");
  el("dead-fields").replaceChildren();
}
// Called with each snapshot: what dead letters died of, without a word of theirs, for every reader.
const classes = {count: 0, at: -Infinity};
export async function showClasses(count) {
  el("died").hidden = !count;
  if (!count || count === classes.count || performance.now() - classes.at < CLASSES_MS) return;
  classes.at = performance.now();
  await guarded(async () => {
    body(el("dead-classes"), CLASSES, (await get("dead-letter-classes")).rows, row => row.error_class);
    classes.count = count;
    set("classes-status", "");
  }, "classes-status");
}
export function start() {
  head(el("dead-classes"), CLASSES);
  head(el("dead-groups"), GROUPS);
  head(el("dead-list"), LIST);
  onSign(isIn => {
    el("workbench").hidden = !isIn;
    if (isIn) tried(() => find());
    else forget();
  });
  el("dead-filter").addEventListener("submit", event => {
    event.preventDefault();
    tried(() => find(filled()));
  });
  el("dead-filter").addEventListener("reset", () => tried(() => find({})));
  el("dead-more").addEventListener("click", () => tried(() => look(signal => fill(dead.rows.length + PAGE_ROWS, signal))));
  el("dead-as").addEventListener("change", () => tried(() => showOne(el("dead-one").dataset.id)));
  el("dead-close").addEventListener("click", () => {
    el("dead-one").hidden = true;
    [...el("dead-list").tBodies[0].rows].find(row => row.dataset.key === el("dead-one").dataset.id)?.querySelector("button").focus();
  });
  el("dead-stop").addEventListener("click", stop);
  el("dead-export").addEventListener("click", () => tried(save));
  for (const each of document.querySelectorAll("button[data-verb]"))
    each.addEventListener("click", () => tried(() => change(each.dataset.verb, each.dataset.which)));
}
