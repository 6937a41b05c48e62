// A process's own view: its state and since when, why it was started again, what it holds, its log, stack and settings.
import {body, bytes, clock, el, head, numbers, seconds, set, text, visible, whole} from "./dom.js";
import {call, guarded, isSignedIn, onSign, read} from "./session.js";
import {view} from "./view.js";

const LOG_MS = 2000, MOST_LOG = 200000, STACK_SECONDS = 15;
const state = {name: "", next: null, timer: null};
const tried = work => guarded(work, "process-status");
const supervised = row => row.supervisor || {};
const since = value => value === null || value === undefined ? "-" : seconds(value) + " ago";
const SETTINGS = [
  {name: "setting", show: row => row.name},
  {name: "value", show: row => visible(JSON.stringify(row.value))},
];

function factsOf(row) {
  const {restarts_by_cause: causes = {}, since_seconds: held, desired, pid, next_try_seconds: next, warning} = supervised(row);
  const stats = Object.entries({...(row.sinker || {}), ...(row.engine || {}), ...(row.commits || {})});
  const waiting = row.waiting_for ? row.waiting_for.what + ": " + row.waiting_for.reason : null;
  const names = list => (list || []).map(each => each.topic ? each.topic + (each.partition === null ? "" : "-" + each.partition) : "all").join(", ");
  return [
    ["state", text(row.state)], ["for", seconds(row.state_seconds)], ["supervisor", text(supervised(row).state)], ["since", since(held)],
    ["wanted", text(desired)], ["pid", text(row.pid ?? pid)], ["runs for", seconds(row.uptime_seconds)],
    ["memory", bytes(supervised(row).resident_bytes ?? row.rss_bytes)],
    ["started again", Object.entries(causes).map(([cause, count]) => count + " × " + cause).join(", ") || whole(supervised(row).restarts)],
    ["batches", whole(row.batches_total)], ["rows", whole(row.rows_total)], ["last batch", seconds(row.last_batch_seconds)],
    ["batch runs for", seconds(row.batch_running_seconds)], ["failed queries", whole(row.queries_failed)],
    ...stats.filter(([, value]) => value !== null).map(([name, value]) =>
      [name.replaceAll("_", " "), name.endsWith("_bytes") ? bytes(value) : name.endsWith("_seconds") ? seconds(value) : whole(value)]),
    ...[["next try", next ? "in " + seconds(next) : null], ["waits for", waiting], ["left out", names(row.left_out)], ["isolated", names(row.isolated)], ["paused", names(row.paused)],
      ["warning", warning], ["last error", row.last_error || supervised(row).last_error]].filter(([, value]) => value).map(([name, value]) => [name, visible(value)]),
  ];
}
// Called with each snapshot.
export function show(rows) {
  const row = rows.find(each => each.name === state.name);
  if (!state.name) return;
  set("process-title", state.name + (row?.kind ? ", " + row.kind : ""));
  set("process-missing", row || !rows.length ? "" : "there is no such process in the last snapshot");
  if (row) numbers("process-facts", factsOf(row));
}
async function showLog() {
  clearTimeout(state.timer);
  if (!state.name || !isSignedIn()) return;
  state.timer = setTimeout(() => tried(showLog), LOG_MS);
  const name = state.name;
  const answer = await read("/api/v1/logs/" + encodeURIComponent(name) + (state.next === null ? "" : "?after=" + state.next));
  if (name !== state.name) return;
  const log = el("process-log"), follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
  const before = answer.is_continued ? log.textContent : "";
  if (answer.text || !answer.is_continued) log.textContent = (before + visible(answer.text || " ")).slice(-MOST_LOG);
  if (follows) log.scrollTop = log.scrollHeight;
  state.next = answer.next;
}
async function showStack() {
  set("process-status", "asking " + state.name + " where it stands …");
  const body = {operation: "stack", params: {name: state.name}, wait_seconds: STACK_SECONDS};
  const {result, text: outcome} = await (await call("/api/v1/operations", body)).json();
  set("process-status", clock(Date.now() / 1000) + ": " + outcome);
  const jvms = (result.jvms || []).map(each => "JVM " + each.pid + "\n" + (each.stack || each.error));
  const threads = (result.threads || []).map(each => each.thread + "\n" + each.stack);
  set("process-stack", visible([...threads, ...jvms].join("\n\n")));
  el("process-stack").hidden = false;
}
async function showSettings() {
  if (!el("process-settings").open || !isSignedIn()) return;
  const {settings} = await read("/api/v1/settings");
  const rows = Object.entries(settings).flatMap(([section, values]) => Object.entries(values).map(([name, value]) => ({name: section + "." + name, value})));
  body(el("settings"), SETTINGS, rows, row => row.name);
}
// Another process, or none: nothing of the former one stays.
export function route() {
  const name = view().worker || "";
  if (name === state.name) return;
  Object.assign(state, {name, next: null});
  for (const id of ["process-log", "process-stack", "process-status"]) set(id, "");
  el("process-stack").hidden = true;
  el("process-facts").replaceChildren();
  tried(showLog);
}
export function start() {
  head(el("settings"), SETTINGS);
  onSign(isIn => {
    el("process-signed").hidden = !isIn;
    el("process-unsigned").hidden = isIn;
    state.next = null;
    if (isIn) { tried(showLog); tried(showSettings); return; }
    clearTimeout(state.timer);
    for (const id of ["process-log", "process-stack"]) set(id, "");
    el("settings").tBodies[0].replaceChildren();
  });
  el("stack").addEventListener("click", () => tried(showStack));
  el("process-settings").addEventListener("toggle", () => tried(showSettings));
}
