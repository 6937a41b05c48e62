// The operations token is in this module's memory and nowhere else.
import {el, set} from "./dom.js";

let token = "";
const listeners = [];
export const isSignedIn = () => token !== "";
export const onSign = listener => listeners.push(listener);

export async function call(path, body, signal) {
  const mine = token, headers = {authorization: "Bearer " + token, ...(body ? {"content-type": "application/json"} : {})};
  const response = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal});
  if (response.ok) return response;
  const {message} = (await response.json()).error;
  // Replaced or taken back while the page is open: what it let somebody see goes with it.
  if ([401, 403].includes(response.status) && mine === token && !el("signed-in").hidden) leave("signed out: " + message);
  throw new Error(message);
}
// A number that JavaScript would change is kept as its text; JSON.stringify writes it as it came.
const asSent = (name, value, {source} = {}) =>
  typeof value === "number" && source && String(value) !== source && JSON.rawJSON ? JSON.rawJSON(source) : value;
export async function read(path, signal) {
  const mine = token, answer = JSON.parse(await (await call(path, null, signal)).text(), asSent);
  if (mine !== token) throw new Error("signed out");
  signal?.throwIfAborted();
  return answer;
}
// Reading that needs no more than what the page itself needed.
export async function get(path) {
  const response = await fetch("/api/v1/" + path, {headers: {accept: "application/json"}});
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error.message), {status: response.status});
  return answer;
}
export async function guarded(work, id) {
  try { await work(); } catch (error) { set(id, error.name === "AbortError" ? "stopped" : error.message); }
}
// One question at a time: a second one must not be answered by the Yes to the first.
export const asked = (question, needsTopic) => el("ask").open ? false : new Promise(resolve => {
  set("ask-text", question);
  el("ask-topic").hidden = !needsTopic;
  el("to").required = Boolean(needsTopic);
  el("ask").returnValue = "no";
  el("ask").addEventListener("close", () => resolve(el("ask").returnValue === "yes"), {once: true});
  el("ask").showModal();
});

// Each listener is called with whether somebody is signed in now, those that read first.
async function sign(isIn) {
  for (const listener of listeners) await listener(isIn);
  el("sign-in").hidden = isIn;
  el("signed-in").hidden = !isIn;
  el("token").value = "";
}
async function leave(why = "") {
  token = "";
  await sign(false);
  set("sign-status", why);
}
export function start() {
  el("sign-in").addEventListener("submit", event => {
    event.preventDefault();
    token = el("token").value;
    guarded(async () => {
      await sign(true);
      set("sign-status", "");
    }, "sign-status").then(() => { if (el("signed-in").hidden) token = ""; });
  });
  el("sign-out").addEventListener("click", () => leave());
  // A browser may keep the memory of a page that was left, and bring it back.
  addEventListener("pagehide", () => leave());
}
