// The page: what it shows is the last snapshot, again and again, in the view that the address names.
import * as charts from "./charts.js";
import * as dead from "./dead_letters.js";
import {badge, body, button, bytes, clock, compared, el, head, isUnknown, isWell, line, make, numbers, rate, seconds, set, text, visible, whole} from "./dom.js";
import * as groups from "./groups.js";
import * as hosts from "./hosts.js";
import * as operations from "./operations.js";
import * as process from "./process.js";
import * as session from "./session.js";
import {get} from "./session.js";
import {isBrief, onBrief, subject, view} from "./view.js";

const MOST_ROWS = 500, MOST_LOADED = 2000, HISTORY_SECONDS = 15, MOST_EVENTS = 50, REST_MS = 500;
// Of a fleet that is collected each second every second snapshot is loaded, in a tab that nobody sees each tenth.
const LOAD_MS = 2000, HIDDEN_MS = 10000, MOST_CREDIT = 3, RATE_MS = 10000;
const TROUBLE = ["paused", "starting", "rebalancing", "unknown", "warn", "rewind", "stalled", "stopped", "losing"].map(each => "&status=" + each).join("");
const SERVES = document.body.dataset.serves.split(" ");
const histories = new Map(), drawn = new Map(), counted = [];
const state = {rows: [], workers: [], matching: 0, sort: null, fetchedAt: 0, age: null, mostAge: 5, took: 0, historyAt: -1e9, busy: false, again: false, linked: null, credit: MOST_CREDIT, creditAt: 0, later: null};

// Drawn once for each history that was loaded: 500 of them a second would keep a browser busy.
function sparkline(key) {
  if (!drawn.has(key)) {
    const lags = histories.get(key) || [], seen = lags.filter(value => value !== null);
    drawn.set(key, line(lags, seen.length ? "lag of the last 15 minutes: from " + whole(seen[0]) + " to " + whole(seen[seen.length - 1]) + ", at most " + whole(Math.max(...seen)) : "no history"));
  }
  return drawn.get(key);
}
const keyOf = row => row.topic + "/" + row.partition + (row.attached ? "/" + row.worker : "");
// Offsets that are stale show no lag of now.
const ofNow = (row, value) => row.age_seconds > state.staleAfter ? null : value;
const PARTITIONS = [
  {name: "topic", show: row => visible(row.topic), by: row => row.topic, href: row => subject({topic: row.topic})},
  {name: "partition", number: true, show: row => String(row.partition), by: row => row.partition,
    href: row => subject({topic: row.topic, partition: row.partition})},
  {name: "status", show: row => badge(row.status), by: row => row.status},
  {name: "lag", number: true, show: row => whole(ofNow(row, row.remaining_count)), by: row => row.remaining_count},
  {name: "time lag", number: true, show: row => seconds(ofNow(row, row.lag_seconds)), by: row => row.lag_seconds},
  {name: "growth", number: true, show: row => rate(ofNow(row, row.growth_per_second)), by: row => row.growth_per_second},
  {name: "last 15 minutes", show: row => sparkline(keyOf(row))},
  {name: "committed", number: true, show: row => whole(row.current_offset), by: row => row.current_offset},
  {name: "end", number: true, show: row => whole(row.kafka_max_offset), by: row => row.kafka_max_offset},
  {name: "worker", show: row => visible(row.worker), by: row => row.worker, href: row => subject({worker: row.worker})},
  {name: "reason", show: row => visible(row.reason), isCut: true},
];
const supervised = row => row.supervisor || {}, stateOf = row => row.state || supervised(row).state;
const WORKERS = [
  {name: "name", show: row => visible(row.name), href: row => subject({worker: row.name})},
  {name: "kind", show: row => text(row.kind)},
  {name: "state", show: row => badge(stateOf(row))},
  {name: "memory", number: true, show: row => bytes(supervised(row).resident_bytes ?? row.rss_bytes)},
  {name: "restarts", number: true, show: row => whole(supervised(row).restarts)},
  {name: "last batch", number: true, show: row => seconds(row.last_batch_seconds)},
  {name: "rows/s", number: true, show: row => whole(row.rows_per_second)},
  {name: "last error", show: row => visible(row.last_error || supervised(row).last_error)},
];

function isInView(row) {
  const {topic, partition, worker} = view();
  if (worker) return row.worker === worker;
  return !topic || (row.topic === topic && (!partition || row.partition === Number(partition)));
}
function showPartitions() {
  const wanted = el("filter").value.trim().toLowerCase(), trouble = el("trouble").checked || (isBrief() && !wanted);
  const inView = state.rows.filter(isInView);
  let rows = inView.filter(row =>
    (!trouble || !isWell(row.status)) &&
    (!wanted || (row.topic + "-" + row.partition + " " + (row.worker || "")).toLowerCase().includes(wanted)));
  if (state.sort) rows = rows.slice().sort(compared(state.sort.by, state.sort.down));
  const shown = rows.slice(0, MOST_ROWS), isWhole = inView.length === state.rows.length;
  body(el("partitions"), PARTITIONS, shown, keyOf);
  set("shown", shown.length + " of " + (isWhole ? state.matching : inView.length) + " partitions" + (trouble ? "; healthy ones are not shown" : ""));
}
function showWorkers() {
  const shown = isBrief() ? state.workers.filter(row => !isWell(stateOf(row))) : state.workers, left = state.workers.length - shown.length;
  body(el("workers"), WORKERS, shown, row => row.name);
  set("workers-status", left ? shown.length + " of " + state.workers.length + " processes; healthy ones are not shown" : "");
}
function showBrief() {
  document.body.classList.toggle("brief", isBrief());
  showPartitions();
  showWorkers();
  showGroups(true);
}
// Messages handled a second on all hosts, over the last ten seconds: by the counters of sinkers, or without them by the rows of workers.
function handledPerSecond() {
  const hasSinkers = state.workers.some(row => row.sinker), at = performance.now();
  const totals = new Map(state.workers.map(row => [row.name, hasSinkers ? row.sinker?.handled : row.rows_total]).filter(([, total]) => !isUnknown(total)));
  counted.push({at, totals});
  while (counted.length > 2 && at - counted[1].at >= RATE_MS) counted.shift();
  const before = counted[0], names = [...totals.keys()].filter(name => before !== counted.at(-1) && before.totals.has(name));
  return names.length ? names.reduce((sum, name) => sum + Math.max(totals.get(name) - before.totals.get(name), 0), 0) * 1000 / (at - before.at) : null;
}
// A time in a reason is not broken over two lines.
const dated = reason => visible(reason).split(/(\d{4}-\d\d-\d\dT[\d:]+Z)/).map((part, number) => number % 2 ? make("time", {textContent: part}) : part);
function headline(verdict) {
  document.title = document.title.replace(/^.*? · /, verdict.level + " · ");
  el("status").className = "badge " + verdict.level;
  set("status", verdict.level);
  if (el("reason").textContent !== visible(verdict.reason)) el("reason").replaceChildren(...dated(verdict.reason));
  el("also").replaceChildren(...verdict.also.map(each => make("li", {}, badge(each.level), " ", ...dated(each.reason))));
}
function showStatus(status) {
  const stored = status.storage || {}, table = status.table_uri ? stored.table || {} : null;
  const inStorage = table ? 0 : isUnknown(stored.pending) || isUnknown(stored.processing) ? null : stored.pending + stored.processing;
  set("title", visible([status.fleet, status.cluster + " / " + status.group].filter(Boolean).join(" · ")));
  document.title = "unknown · " + visible([status.fleet, status.group].filter(Boolean).join(" · ")) + " · kctl";
  state.mostAge = status.max_age_seconds;
  state.staleAfter = status.brokers ? status.brokers.stale_after_seconds : Infinity;
  headline(status.verdict);
  set("advice", "Advice: " + visible(status.advice));
  numbers("summary", [
    ["oldest unhandled", seconds(status.verdict.oldest_unhandled_seconds)],
    ["messages waiting", whole(isUnknown(status.lag) || inStorage === null ? null : status.lag + inStorage)],
    ["handled", charts.perSecond(handledPerSecond())], ["dead letters", whole(stored.dead)],
  ]);
  numbers("kafka", [
    ["lag", whole(status.lag)], ...(status.behind_transaction ? [["behind open transactions", whole(status.behind_transaction)]] : []), ["time lag", seconds(status.lag_seconds)], ["growth", rate(status.growth_per_second)],
    ["caught up in", seconds(status.catchup_seconds)], ["generation", text(status.generation)],
    ["group", text(status.group_state)], ["members", whole(status.group_members)], ["worst partition", status.status],
  ]);
  numbers("storage", table ? [
    ["rows", whole(table.rows)], ["version", text(table.version)], ["last commit", isUnknown(table.last_commit_seconds) ? "-" : seconds(table.last_commit_seconds) + " ago"],
    ["files", whole(table.files)], ["small files", whole(table.small_files)], ["size", bytes(stored.bytes)], ["path", visible(status.table_uri)],
  ] : [
    ["pending", whole(stored.pending)], ["processing", whole(stored.processing)], ["dead", whole(stored.dead)],
    ["size", bytes(stored.bytes)], ["limit", stored.limit ? whole(stored.limit) : "-"],
  ]);
  if (SERVES.includes("dead-letters")) dead.showClasses(stored.dead);
  const has = Boolean(stored.limit) && stored.pending !== null && stored.processing !== null;
  el("room").hidden = !has;
  if (has) {
    el("fill").value = Math.min((stored.pending + stored.processing) / stored.limit, 1);
    set("fill-text", Math.round(el("fill").value * 100) + " %");
  }
}
async function partitionRows(query) {
  const all = await get("lag?limit=" + MOST_LOADED + query);
  if (all.next === null) return all;
  // Too many to load once a second: those in trouble first, then the others as far as they fit.
  const trouble = await get("lag?limit=" + MOST_LOADED + TROUBLE + query), known = new Set(trouble.rows.map(keyOf));
  all.rows = trouble.rows.concat(all.rows.filter(row => !known.has(keyOf(row)))).slice(0, MOST_LOADED);
  return all;
}
async function load() {
  const {topic, partition, worker} = view(), now = performance.now(), withHistory = now - state.historyAt > HISTORY_SECONDS * 1000;
  const filter = Object.entries({topic, partition, worker}).filter(([, value]) => value).map(([name, value]) => "&" + name + "=" + encodeURIComponent(value)).join("");
  const [status, lag, workers] = await Promise.all([
    get("status"), partitionRows(filter + (withHistory ? "&history=1" : "")), get("workers?limit=1000"), charts.refresh(), showGroups(), SERVES.includes("hosts") && hosts.refresh(),
  ]);
  if (withHistory) {
    histories.clear();
    drawn.clear();
    for (const row of lag.rows) histories.set(keyOf(row), row.history);
    state.historyAt = now;
  }
  Object.assign(state, {rows: lag.rows, matching: lag.matching, workers: workers.rows, fetchedAt: performance.now(), took: (performance.now() - now) / 1000, age: status.age_seconds});
  showStatus(status);
  showPartitions();
  showWorkers();
  process.show(workers.rows);
  set("missing", lacks(lag));
  if (state.linked !== null) link(state.linked, "");
  showSections();
}
const showGroups = isNew => SERVES.includes("groups") ? groups.refresh(isNew) : null;
async function refresh() {
  if (state.busy) { state.again = true; return; }
  state.busy = true;
  try { await load(); } catch (error) { link(false, error.message); } finally {
    setTimeout(() => {
      state.busy = false;
      if (state.again) { state.again = false; refresh(); }
    }, REST_MS);
  }
}
// There is a new snapshot. A few that come after a rest are loaded at once.
function collected() {
  const now = performance.now(), every = document.hidden ? HIDDEN_MS : LOAD_MS;
  clearTimeout(state.later);
  state.linked = true;
  state.credit = Math.min(document.hidden ? 1 : MOST_CREDIT, state.credit + (now - state.creditAt) / every);
  state.creditAt = now;
  if (state.credit < 0.9) { state.later = setTimeout(collected, (1.1 - state.credit) * every); return; }
  state.credit -= 1;
  refresh();
}
function lacks(answer) {
  const silent = answer.failed.filter(each => answer.asked.includes(each.from)).map(each => each.from);
  const others = answer.failed.filter(each => !answer.asked.includes(each.from)).map(each => each.message);
  const stopped = answer.stopped.length ? ["stopped by request: " + answer.stopped.join(", ")] : [];
  return [...(silent.length ? ["no answer from " + silent.join(", ")] : []), ...others, ...stopped].join(" · ");
}
function link(isLive, why) {
  el("link").className = "badge " + (isLive ? "live" : "lost");
  set("link", isLive ? "live" : "not connected" + (why ? ": " + why : ""));
}
function showAge() {
  if (state.age === null) return;
  const age = state.age + (performance.now() - state.fetchedAt) / 1000;
  set("age", "snapshot " + seconds(age) + " old");
  // The master's limit, and what an answer takes: with a host that is silent a second or more.
  const isOld = age > state.mostAge + state.took;
  document.querySelector("main").classList.toggle("old", isOld);
  if (!isOld) return;
  // What is old is never shown as well, and a stream in which nothing comes is not live.
  const since = new Date(Date.now() - age * 1000).toISOString().replace(/[.].*/, "Z");
  headline({level: "unknown", reason: "no data since " + since + ": the master does not answer this page", also: []});
  if (el("link").classList.contains("live")) link(false, "");
}
function happened(event) {
  const one = JSON.parse(event.data), words = one.worker && !one.text.includes(one.worker) ? one.worker + ": " + one.text : one.text;
  const item = make("li", {}, ...[clock(one.at), one.kind, words].map(each => make("span", {textContent: visible(each)})));
  item.dataset.id = event.lastEventId;
  el("no-events")?.remove();
  el("events").prepend(item);
  while (el("events").children.length > MOST_EVENTS) el("events").lastElementChild.remove();
}
function listen() {
  const source = new EventSource("/api/v1/events?recent=" + MOST_EVENTS);
  source.addEventListener("happened", happened);
  source.addEventListener("collected", collected);
  source.addEventListener("error", () => {
    state.linked = false;
    link(false, "");
    // Refused for good (a token that is no longer right, too many streams): try again by and by.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  });
}

// By keyboard, and past hundreds of rows, to each section that is shown.
function showSections() {
  const shown = [...document.querySelectorAll("main h2")].filter(each => each.checkVisibility()), nav = el("sections");
  const titles = shown.length > 1 ? shown : [];
  if (titles.map(each => each.textContent).join() === [...nav.children].map(each => each.textContent).join()) return;
  nav.replaceChildren(...titles.map(title => button(title.textContent, () => {
    title.tabIndex = -1;
    title.focus();
    title.scrollIntoView();
  })));
}
// Each section names the views in which it is shown.
function route() {
  const {topic, partition, worker, group} = view(), kind = worker ? "worker" : topic ? "topic" : group ? "group" : "fleet";
  for (const each of document.querySelectorAll("[data-views]")) {
    const serves = (each.dataset.serves || "fleet").split(" ");
    each.classList.toggle("elsewhere", !each.dataset.views.split(" ").includes(kind) || !serves.some(part => SERVES.includes(part)));
  }
  set("where", worker || group || (topic ? topic + (partition ? " / " + partition : "") : ""));
  el("back").href = subject({});
  charts.showRange();
  process.route();
  operations.route();
  showSections();
  showBrief();
  if (!SERVES.includes("fleet")) return;
  process.show(state.workers);
  charts.refresh(true);
  state.historyAt = -1e9;
  refresh();
}
function start() {
  head(el("workers"), WORKERS);
  head(el("partitions"), PARTITIONS, ({by}, down) => { state.sort = {by, down}; showPartitions(); });
  for (const each of [session, operations, dead, process, groups, hosts, charts]) each.start();
  el("filter").addEventListener("input", showPartitions);
  el("trouble").addEventListener("change", showPartitions);
  el("choice").addEventListener("submit", event => event.preventDefault());
  session.onSign(showSections);
  onBrief(showBrief);
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && document.activeElement.tagName !== "INPUT") {
      event.preventDefault();
      [el("filter"), el("groups-find")].find(each => each.checkVisibility())?.focus();
    } else if (event.key === "Escape" && document.activeElement === el("filter")) {
      el("filter").value = "";
      showPartitions();
    }
  });
  addEventListener("hashchange", route);
  if (SERVES.includes("fleet")) {
    for (const each of ["online", "offline"]) addEventListener(each, refresh);
    document.addEventListener("visibilitychange", () => document.hidden || refresh());
    setInterval(showAge, 500);
    listen();
  } else {
    set("title", "kctl exporter");
    set("back", "All groups");
    document.title = "kctl exporter";
    setInterval(showGroups, 2000);
  }
  route();
}
start();
