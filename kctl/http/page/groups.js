// Every group of the clusters: searched and sorted by the server, which has them all; one of them in detail.
import {badge, body, compared, el, head, isWell, rate, seconds, set, text, visible, whole} from "./dom.js";
import {get} from "./session.js";
import {change, isBrief, subject, view} from "./view.js";

const MOST_GROUPS = 200, REST_MS = 2000, GROUP_REST_MS = 10000;
const state = {at: -Infinity, asked: null, rows: [], sort: {by: row => row.topic, down: false}};
const COLUMNS = [
  {name: "group", show: row => visible(row.group), href: row => subject({group: row.group, cluster: row.cluster})},
  {name: "cluster", show: row => visible(row.cluster)},
  {name: "status", show: row => badge(row.status)},
  {name: "lag", number: true, show: row => whole(row.lag)},
  {name: "time lag", number: true, show: row => seconds(row.lag_seconds)},
  {name: "growth", number: true, show: row => rate(row.growth_per_second)},
  {name: "state", show: row => text(row.state)},
  {name: "members", number: true, show: row => whole(row.members)},
  {name: "partitions", number: true, show: row => whole(row.partitions)},
  {name: "reason", show: row => visible(row.reason)},
];
const PARTITIONS = [
  {name: "topic", show: row => visible(row.topic), by: row => row.topic},
  {name: "partition", number: true, show: row => String(row.partition), by: row => row.partition},
  {name: "status", show: row => badge(row.status), by: row => row.status},
  {name: "lag", number: true, show: row => whole(row.remaining_count), by: row => row.remaining_count},
  {name: "time lag", number: true, show: row => seconds(row.lag_seconds), by: row => row.lag_seconds},
  {name: "growth", number: true, show: row => rate(row.growth_per_second), by: row => row.growth_per_second},
  {name: "committed", number: true, show: row => whole(row.current_offset), by: row => row.current_offset},
  {name: "end", number: true, show: row => whole(row.kafka_max_offset), by: row => row.kafka_max_offset},
  {name: "reason", show: row => visible(row.reason), isCut: true},
];
const MEMBERS = [
  {name: "client", show: row => visible(row.client_id)},
  {name: "host", show: row => visible(row.host)},
  {name: "member", show: row => visible(row.member_id)},
  {name: "lag", number: true, show: row => whole(row.lag)},
  {name: "partitions", show: row => visible(Object.entries(row.assigned || {}).map(([topic, numbers]) => topic + " " + numbers.join(",")).join("; "))},
];

const globOf = wanted => "*" + wanted.replace(/[[*?]/g, each => "[" + each + "]") + "*";
async function list() {
  const {find = "", sort = "status"} = view(), asked = state.asked = Symbol();
  const answer = await get("groups?" + new URLSearchParams({sort, limit: MOST_GROUPS, ...(find && {group: globOf(find)})}));
  if (asked !== state.asked) return;
  const shown = isBrief() && !find ? answer.rows.filter(row => !isWell(row.status)) : answer.rows;
  body(el("groups"), COLUMNS, shown, row => row.cluster + "/" + row.group);
  const statuses = Object.entries(answer.statuses).map(([status, count]) => whole(count) + " " + status).join(", ");
  const waiting = answer.clusters.map(each => each.not_ready || each.cluster + " collected " + seconds(each.age_seconds) + " ago");
  set("groups-status", [whole(shown.length) + " of " + whole(answer.total) + " groups", statuses, "lag " + whole(answer.lag), ...waiting].filter(Boolean).join(" · "));
}
async function one({group, cluster}) {
  const asked = state.asked = Symbol();
  const answer = await get("groups/" + encodeURIComponent(group) + (cluster ? "?" + new URLSearchParams({cluster}) : ""));
  if (asked !== state.asked) return;
  set("group-title", answer.cluster + " / " + answer.group);
  set("group-reason", answer.reason);
  set("group-status", [answer.type, answer.state, "lag " + whole(answer.lag), "time lag " + seconds(answer.lag_seconds), answer.members_error].filter(Boolean).join(" · "));
  state.rows = answer.rows;
  showPartitions();
  body(el("group-members"), MEMBERS, answer.members || [], row => row.member_id);
}
function showPartitions() {
  const {by, down} = state.sort;
  body(el("group-partitions"), PARTITIONS, state.rows.slice().sort(compared(by, down)).slice(0, 1000), row => row.topic + "/" + row.partition);
}
// Called with each snapshot of a fleet, and by itself for an exporter; no more often than groups are collected.
export async function refresh(isNew = false) {
  const now = performance.now(), {group, cluster, worker, topic} = view();
  if (worker || topic || (!isNew && now - state.at < (group ? GROUP_REST_MS : REST_MS))) return;
  state.at = now;
  try {
    await (group ? one({group, cluster}) : list());
    document.querySelector("main").classList.remove("old");
  } catch (error) {
    document.querySelector("main").classList.add("old");  // what is old never looks live
    set(group ? "group-status" : "groups-status", error.message);
  }
}
export function start() {
  head(el("groups"), COLUMNS);
  head(el("group-partitions"), PARTITIONS, ({by}, down) => { state.sort = {by, down}; showPartitions(); });
  head(el("group-members"), MEMBERS);
  el("groups-find").addEventListener("input", () => change({find: el("groups-find").value.trim() || null}, false));
  el("groups-sort").addEventListener("change", () => change({sort: el("groups-sort").value}, false));
  el("groups-choice").addEventListener("submit", event => event.preventDefault());
  el("groups-find").value = view().find || "";
  el("groups-sort").value = view().sort || "status";
}
