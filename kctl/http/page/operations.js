// Operations: each is previewed or described, asked about, submitted and followed; the last ones in a list.
import {badge, body, button, clock, el, head, make, set, visible} from "./dom.js";
import {asked, call, guarded, isSignedIn, onSign, read} from "./session.js";
import {view} from "./view.js";

const OPERATIONS = "/api/v1/operations", SHOWN_OPERATIONS = 50, OPERATIONS_MS = 2000, PREVIEW_SECONDS = 30;
const acting = {types: [], cancels: new Map(), followed: null, timer: null};
const tried = work => guarded(work, "operation-status");
const OPERATION_ROWS = [
  {name: "", show: row => row.state === "running" ? cancelOf(row) : ""},
  {name: "began", show: row => clock(row.started_at)},
  {name: "operation", show: row => visible(row.operation)},
  {name: "parameters", show: row => visible(Object.entries(row.params).map(([name, value]) => name + "=" + value).join(" "))},
  {name: "by", show: row => visible(row.by) + " (" + row.via + ")"},
  {name: "state", show: row => badge(row.state)},
  {name: "outcome", show: row => visible(row.text)},
];
// Each master numbers its operations from 1: that of another one with the same id is not meant.
const same = row => other => other.id === row.id && other.started_at === row.started_at;
const keyOfOperation = row => row.id + " " + row.started_at;
function cancelOf(row) {
  const key = keyOfOperation(row);
  if (!acting.cancels.has(key)) acting.cancels.set(key, button("Cancel", () => tried(async () => {
    const now = (await read(OPERATIONS)).rows.find(same(row));
    if (now?.state !== "running") throw new Error("it has ended already");
    await call(OPERATIONS + "/" + row.id + "/cancel", {});
    await showOperations();
  })));
  return acting.cancels.get(key);
}
// While somebody is about to press something in the table, its rows stay where they are and only change.
async function showOperations() {
  clearTimeout(acting.timer);
  acting.timer = setTimeout(() => isSignedIn() && tried(showOperations), OPERATIONS_MS);
  const table = el("operations"), {rows} = await read(OPERATIONS), stays = table.matches(":hover, :focus-within");
  const known = new Set([...table.tBodies[0].rows].map(row => row.dataset.key)), begun = rows.filter(row => !row.params.dry_run);
  const shown = begun.slice(0, SHOWN_OPERATIONS).filter(row => !stays || known.has(keyOfOperation(row)));
  body(table, OPERATION_ROWS, shown, keyOfOperation);
  const followed = acting.followed && rows.find(same(acting.followed));
  if (!followed) return;
  set("operation-status", followed.operation + ": " + followed.state + (followed.text ? ": " + visible(followed.text) : ""));
  if (followed.state !== "running") acting.followed = null;
}
const chosenType = () => acting.types.find(each => each.rpc === el("operation-type").value);
function fieldOf(param) {
  const label = document.createElement("label"), field = document.createElement("input");
  field.name = param.name;
  field.title = param.summary;
  if (param.type === "boolean") field.type = "checkbox";
  else { field.required = param.required; field.placeholder = param.summary; field.size = Math.min(Math.max(param.summary.length, 8), 40); }
  label.append(param.name.replaceAll("_", " ") + " ", field);
  return label;
}
function showType() {
  const type = chosenType();
  el("operation-params").replaceChildren(...type.params.filter(each => each.name !== "dry_run").map(fieldOf));
  el("operation-preview").hidden = !hasPreview(type);
  set("operation-summary", type.summary);
  route();
}
// What the view is of stands in the form, but where somebody has written something else.
export function route() {
  const {topic, partition, worker} = view(), here = {topic, partition, worker, name: worker};
  for (const field of el("operation-params").querySelectorAll("input:not([type=checkbox])")) {
    const {filled = ""} = field.dataset;
    if (field.value === filled) field.value = field.dataset.filled = here[field.name] || "";
  }
}
const hasPreview = type => type.params.some(each => each.name === "dry_run");
function filledParams() {
  const types = Object.fromEntries(chosenType().params.map(each => [each.name, each.type])), params = {};
  for (const field of el("operation-params").querySelectorAll("input")) {
    if (field.type === "checkbox") { if (field.checked) params[field.name] = true; continue; }
    const value = field.value.trim(), isNumber = ["integer", "number"].includes(types[field.name]);
    if (value === "") continue;
    if (isNumber && !/^-?\d{1,15}(\.\d{1,6})?$/.test(value)) throw new Error(field.name + " is a number, not " + visible(value));
    params[field.name] = isNumber ? Number(value) : value;
  }
  return params;
}
async function preview(params = filledParams()) {
  acting.followed = null;
  set("operation-status", "asking what would happen …");
  const body = {operation: chosenType().rpc, params: {...params, dry_run: true}, wait_seconds: PREVIEW_SECONDS};
  const found = await (await call(OPERATIONS, body)).json();
  if (found.state !== "done") throw new Error("no preview within " + PREVIEW_SECONDS + " s: nothing is submitted");
  set("operation-status", visible(found.text));
  return found;
}
// A seek goes to the offsets that were shown, not to what `latest` or a time is by then.
const asShown = (params, rows) => {
  const {partition, ...others} = params;
  return {...others, to: rows.map(row => row.partition + "=" + row.to).join(",")};
};
// Whether a Yes to the one is a Yes to the other: a worker that has gone on, on its side of where it is sent, is as before.
function isStill(before, now) {
  if (before.operation !== "seek") return before.text === now.text;
  const shown = new Map(before.result.rows.map(row => [row.partition, row]));
  return shown.size === now.result.rows.length && now.result.rows.every(({partition, from, to}) => {
    const then = shown.get(partition);
    return then?.to === to && from >= then.from && Math.sign(from - to) === Math.sign(then.from - to);
  });
}
// The parameters that the user has confirmed, as they were shown. If they have changed, the page asks again.
async function agreed(question, params) {
  let shown = await preview(params), changed = "";
  while (await asked(changed + question + visible(shown.text))) {
    if (shown.operation === "seek") params = asShown(params, shown.result.rows);
    const now = await preview(params);
    if (isStill(shown, now)) return params;
    [shown, changed] = [now, "Meanwhile it has changed. "];
  }
  return null;
}
async function submitOperation() {
  const type = chosenType(), params = filledParams();
  const words = Object.entries(params).map(([name, value]) => name + " " + value).join(", ");
  const question = type.rpc + (words ? " (" + visible(words) + ")" : "") + ": ";
  const given = hasPreview(type) ? await agreed(question, params) : await asked(question + type.summary) && params;
  if (!given) return;
  acting.followed = await (await call(OPERATIONS, {operation: type.rpc, params: given, wait_seconds: 0})).json();
  await showOperations();
}
async function busy(work) {
  const buttons = [el("operation-preview"), el("operation-submit")];
  for (const each of buttons) each.disabled = true;
  try { await tried(work); } finally { for (const each of buttons) each.disabled = false; }
}
async function showTypes() {
  acting.types = (await read(OPERATIONS + "/types")).rows;
  el("operation-type").replaceChildren(...acting.types.map(each => new Option(each.rpc.replaceAll("_", " "), each.rpc)));
  showType();
}

export function start() {
  head(el("operations"), OPERATION_ROWS);
  onSign(async isIn => {
    if (isIn) await showTypes();
    el("acting").hidden = !isIn;
    if (isIn) { tried(showOperations); return; }
    el("operation").reset();
    acting.followed = null;
    clearTimeout(acting.timer);
    el("operations").tBodies[0].replaceChildren();
    set("operation-status", "");
  });
  el("operation-type").addEventListener("change", showType);
  el("operation-preview").addEventListener("click", () => el("operation").reportValidity() && busy(() => preview()));
  el("operation").addEventListener("submit", event => {
    event.preventDefault();
    busy(submitOperation);
  });
}
