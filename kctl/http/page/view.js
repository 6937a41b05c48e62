// The view stands in the address behind "#": a link keeps it, and nothing of it reaches the server.
export const view = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
export const hashOf = params => "#" + new URLSearchParams(params);
const narrow = matchMedia("(max-width: 40rem)");
// On a narrow screen the first view lists only what is not healthy, until the reader asks for the rest.
export const isBrief = () => narrow.matches && !document.getElementById("all").checked && ["topic", "worker", "group"].every(each => !(each in view()));
export const onBrief = listener => { for (const each of [narrow, document.getElementById("all")]) each.addEventListener("change", listener); };
// The range of charts goes along from one subject to another.
export const subject = params => {
  const {range, until} = view();
  return hashOf({...params, ...(range && {range}), ...(until && {until})});
};
export function change(params, isStep = true) {
  const wanted = {...view(), ...params};
  for (const [name, value] of Object.entries(wanted)) if (value === null) delete wanted[name];
  if (isStep) { location.hash = hashOf(wanted); return; }
  history.replaceState(null, "", hashOf(wanted));
  dispatchEvent(new Event("hashchange"));
}
