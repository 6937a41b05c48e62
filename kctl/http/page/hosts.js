// The hosts of a fleet as the one that serves this page knows them: who is there, since when not, and why.
import {badge, body, el, head, set, text, visible} from "./dom.js";
import {get} from "./session.js";
import {view} from "./view.js";

const REST_MS = 5000;
const state = {at: -Infinity};
const moment = unix => new Date(unix * 1000).toISOString().replace(/[.].*/, "Z");
// What another host names as its address is followed only if it is one of a page.
const address = row => row.state !== "here" && /^https?:\/\/[^/]/.test(row.url) ? row.url + "/" : null;
const COLUMNS = [
  {name: "name", show: row => visible(row.name)},
  {name: "state", show: row => badge(row.state)},
  {name: "since", show: row => row.since === null ? "-" : moment(row.since)},
  {name: "address", show: row => visible(row.url), href: address},
  {name: "version", show: row => visible(row.version)},
  {name: "what is missing", show: row => visible(row.reason)},
];

// Called with each snapshot; no more often than masters ask each other.
export async function refresh() {
  const {worker, topic, group} = view(), now = performance.now();
  if (worker || topic || group || now - state.at < REST_MS) return;
  state.at = now;
  try {
    const answer = await get("hosts");
    body(el("hosts"), COLUMNS, answer.rows, row => row.name + " " + row.url);
    set("hosts-status", ["led by " + text(answer.leader), answer.error].filter(Boolean).join(" · "));
  } catch (error) { set("hosts-status", error.message); }
}
export const start = () => head(el("hosts"), COLUMNS);
