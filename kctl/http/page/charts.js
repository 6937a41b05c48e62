// Charts of the last day of the fleet, a topic, a partition or a process: one cursor over all, drag to zoom, marks of
// what happened. Each has a caption with last, least and most, and a table behind it, for those who cannot see a canvas.
import uPlot from "./vendor/uplot.js";
import {bytes, clock, el, isUnknown, make, seconds, set, visible, whole} from "./dom.js";
import {get} from "./session.js";
import {change, view} from "./view.js";

const RANGE = 900, PROCESS_RANGE = 3600, MOST_RANGE = 86400, HEIGHT = 150, LEAST_SPAN = 60, AXIS_WIDTH = 64, MOST_MARKS = 50;
export const perSecond = value => isUnknown(value) ? "-" : (value < 10 ? value.toFixed(1) : whole(value)) + "/s";
const CHARTS = [
  {id: "lag", title: "Lag", show: whole, lines: [["lag", "messages"]]},
  {id: "lag-seconds", title: "Time lag", show: seconds, lines: [["lag_seconds", "time lag"]]},
  {id: "rates", title: "Messages", show: perSecond,
    lines: [["produced_per_second", "produced"], ["stored_per_second", "stored"], ["handled_per_second", "handled"]]},
  {id: "batch", title: "Batches", show: seconds, bars: true, lines: [["batch_seconds", "took"]]},
  {id: "memory", title: "Memory", show: bytes, lines: [["memory_bytes", "resident"]]},
  {id: "held", title: "Partitions held", show: whole, lines: [["partitions", "partitions"]]},
];
const POWERS = Array.from({length: 50}, (_, power) => 2 ** power);
const WHOLE = Array.from({length: 16}, (_, power) => [1, 2, 5].map(each => each * 10 ** power)).flat();
const MARKS = {rebalance: "R", restart: "↻", operation: "O"};
const charts = new Map();
const state = {subject: "", from: 0, to: 0, newest: Infinity, step: 5, times: [], marks: [], fetchedAt: -Infinity, asked: null};
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const range = () => Math.min(Math.max(Number(view().range) || (view().worker ? PROCESS_RANGE : RANGE), 15), MOST_RANGE);

const tick = unix => new Date(unix * 1000).toISOString().slice(11, state.to - state.from > 600 ? 16 : 19) + "Z";
// Of each line the most, and a band from the least to it; uPlot would begin a bar at the lower edge of its band.
function optionsOf(chart, width) {
  const series = [{}], bands = [];
  chart.lines.forEach(([, label], number) => {
    const stroke = color("--line-" + number);
    if (!chart.bars) bands.push({series: [series.length, series.length + 1], fill: stroke + "33"});
    const drawn = chart.bars ? {paths: uPlot.paths.bars({size: [0.8, 12]}), fill: stroke + "99", points: {show: false}} : {width: 1.5, points: {size: 3, fill: stroke}};
    series.push({label, stroke, ...drawn}, {stroke: "transparent", points: {show: false}});
  });
  const axis = {stroke: color("--quiet"), grid: {stroke: color("--line"), width: 1}, ticks: {show: false}, font: "12px system-ui"};
  return {
    width, height: HEIGHT, series, bands, legend: {show: false}, padding: [12, 32, 0, 0],
    cursor: {sync: {key: "kctl"}, y: false, drag: {x: true, y: false}, points: {size: 6}},
    scales: {x: {time: true, range: () => [state.from, state.to]}, y: {range: (self, least, most) => [0, most > 0 ? most * 1.08 : 1]}},
    axes: [
      {...axis, space: 70, size: 26, values: (self, ticks) => ticks.map(tick)},
      {...axis, size: AXIS_WIDTH, space: 34, ...(chart.show === bytes && {incrs: POWERS}), ...(chart.show === whole && {incrs: WHOLE}), values: (self, ticks) => ticks.map(value => chart.show(value))},
    ],
    hooks: {setCursor: [showCursor], setSelect: [zoom], draw: [drawMarks]},
  };
}
function drawMarks(plot) {
  const {ctx, bbox} = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = color("--mark");
  ctx.font = 11 * devicePixelRatio + "px system-ui";
  ctx.textAlign = "center";
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  let last = -Infinity;
  for (const mark of state.marks) {
    if (mark.at < state.from || mark.at > state.to) continue;
    const x = plot.valToPos(mark.at, "x", true);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (x - last > 9 * devicePixelRatio) ctx.fillText(MARKS[mark.kind] || "!", x, bbox.top - 2);
    last = x;
  }
  ctx.restore();
}
// The caption of every chart is of the step under the cursor, while there is one; else of the last, whose most may be above
// what the fleet's numbers are by now.
function showCursor(plot) {
  const place = plot.cursor.left >= 0 ? plot.cursor.idx : null;
  for (const each of charts.values()) caption(each, place);
}
function zoom(plot) {
  if (plot.select.width < 5) return;
  const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map(x => plot.posToVal(x, "x"));
  plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
  change({range: Math.max(15, Math.round(to - from)), until: Math.round(to)});
}
const known = values => values.filter(value => value !== null);
function words(chart, place) {
  const {definition, series} = chart;
  return definition.lines.map(([name, label]) => {
    if (!series[name]) return "";
    const {least, most} = series[name], all = known(most);
    const prefix = definition.lines.length > 1 ? label + " " : "", step = state.step < 10 ? state.step + " s" : seconds(state.step);
    if (place !== null && place !== undefined) return prefix + definition.show(most[place]);
    if (!all.length) return view().worker ? "" : prefix + "-";
    const [low, high] = [Math.min(...known(least)), Math.max(...all)];
    const last = most.findLastIndex(value => value !== null), isMost = definition.show(least[last]) !== definition.show(most[last]);
    return prefix + definition.show(most[last]) + (isMost ? " (most of " + step + ")" : "") + ", from " + definition.show(low) + " to " + definition.show(high);
  });
}
function caption(chart, place) {
  const shown = words(chart, place), when = place === null || place === undefined ? "" : clock(state.times[place]);
  chart.values.forEach((each, number) => { if (each.textContent !== shown[number]) each.textContent = shown[number]; });
  if (chart.when.textContent !== when) chart.when.textContent = when;
}
function chartOf(definition) {
  const values = definition.lines.map((_, number) => make("span", {className: "value line-" + number})), when = make("span", {className: "when quiet"});
  const plot = make("div", {className: "plot"}), table = make("table"), details = make("details", {},
    make("summary", {textContent: "Values as a table"}), make("div", {className: "scroll", tabIndex: 0}, table));
  const caption = make("div", {className: "caption"}, make("span", {className: "row"}, make("strong", {textContent: definition.title}), when), ...values);
  const box = make("div", {id: "chart-" + definition.id, className: "chart", role: "group", ariaLabel: definition.title}, caption, plot, details);
  table.setAttribute("aria-label", definition.title);
  plot.setAttribute("aria-hidden", "true");
  const chart = {definition, box, values, when, plot, table, details, series: {}, drawn: null};
  details.addEventListener("toggle", () => fillTable(chart));
  plot.addEventListener("dblclick", () => change({range: null, until: null}));
  return chart;
}
function fillTable(chart) {
  if (!chart.details.open) return;
  const lines = chart.definition.lines.filter(([name]) => chart.series[name]);
  const heading = make("tr", {}, ...["at", ...lines.flatMap(([, label]) => [label + ", least", "most"])].map(name => make("th", {scope: "col", textContent: name})));
  const rows = state.times.map((at, place) => make("tr", {}, ...[clock(at), ...lines.flatMap(([name]) =>
    [chart.series[name].least[place], chart.series[name].most[place]].map(chart.definition.show))].map(value => make("td", {textContent: value}))));
  chart.table.replaceChildren(make("thead", {}, heading), make("tbody", {}, ...rows.reverse()));
}
function draw(chart) {
  const data = [state.times], width = chart.plot.clientWidth;
  for (const [name] of chart.definition.lines) {
    const none = state.times.map(() => null), {least = none, most = none} = chart.series[name] || {};
    data.push(most, least);
  }
  if (!width) return;
  if (chart.drawn) chart.drawn.setData(data);
  else chart.drawn = new uPlot(optionsOf(chart.definition, width), data, chart.plot);
  caption(chart, chart.drawn.cursor.left >= 0 ? chart.drawn.cursor.idx : null);
  fillTable(chart);
}
function redraw() {
  for (const chart of charts.values()) { chart.drawn?.destroy(); chart.drawn = null; draw(chart); }
}
function show(answer) {
  const names = Object.keys(answer.series), count = answer.series[names[0]].most.length;
  state.step = answer.step_seconds;
  state.times = Array.from({length: count}, (_, place) => answer.first_at + place * state.step);
  state.marks = answer.marks;
  for (const definition of CHARTS) {
    // Of a process only what it does: a sinker stores nothing, an engine holds nothing.
    const isShown = definition.lines.some(([name]) => answer.series[name] && (!view().worker || known(answer.series[name].most).length));
    if (isShown && !charts.has(definition.id)) charts.set(definition.id, chartOf(definition));
    if (!isShown) { charts.get(definition.id)?.box.remove(); charts.delete(definition.id); }
  }
  const wanted = CHARTS.filter(each => charts.has(each.id)).map(each => charts.get(each.id));
  wanted.forEach((chart, place) => {
    chart.series = answer.series;
    if (el("charts").children[place] !== chart.box) el("charts").insertBefore(chart.box, el("charts").children[place]);
    draw(chart);
  });
  el("marks").replaceChildren(...(answer.marks.length ? answer.marks.slice(-MOST_MARKS).reverse().map(mark =>
    make("li", {}, make("time", {textContent: clock(mark.at)}), make("span", {textContent: mark.kind}), make("span", {textContent: visible(mark.text)})))
    : [make("li", {className: "quiet", textContent: "nothing happened in this time"})]));
  set("charts-status", answer.began_at > state.from ? "no data before " + clock(answer.began_at) : "");
}
// When the first step begins of which anything is known: a chart of a new fleet or process begins there.
function firstKnown({series, first_at: first, step_seconds: step, until}) {
  const places = Object.values(series).map(({most}) => most.findIndex(value => value !== null)).filter(place => place >= 0);
  return places.length ? first + Math.min(...places) * step : until;
}
// Called with each snapshot; asks once a step, and of a time that is over once.
export async function refresh(isNew = false) {
  const {topic, partition, worker, group, cluster, until} = view(), now = performance.now();
  if (!isNew && (until || now - state.fetchedAt < state.step * 1000)) return;
  const asked = state.asked = Symbol(), params = {seconds: range()};
  for (const [name, value] of Object.entries({topic, partition, worker, group, cluster, until})) if (value) params[name] = value;
  state.fetchedAt = now;
  try {
    const answer = await get("history?" + new URLSearchParams(params));
    if (asked !== state.asked) return;
    [state.from, state.to] = [until ? answer.since : Math.max(answer.since, Math.min(firstKnown(answer), answer.until - LEAST_SPAN)), answer.until];
    if (!until) state.newest = answer.until;
    show(answer);
  } catch (error) {
    if (asked !== state.asked) return;
    set("charts-status", error.message);
    if (error.status !== 404) return;
    for (const {box} of charts.values()) box.remove();
    charts.clear();
    el("marks").replaceChildren();
  }
}
export function showRange() {
  const {until} = view();
  for (const each of el("ranges").querySelectorAll("button[data-range]"))
    each.setAttribute("aria-pressed", String(range() === Number(each.dataset.range)));
  set("range-text", until ? clock(Number(until) - range()) + " to " + clock(Number(until)) : "live");
  el("later").disabled = el("now").disabled = !until;
}
export function start() {
  el("ranges").addEventListener("click", event => {
    const {dataset, id} = event.target, until = Number(view().until) || state.to;
    if (dataset.range) change({range: dataset.range});
    if (id === "now") change({until: null});
    if (id === "earlier") change({until: Math.round(until - range() / 2)});
    if (id === "later") change({until: until + range() / 2 < state.newest ? Math.round(until + range() / 2) : null});
  });
  new ResizeObserver(() => {
    for (const chart of charts.values()) {
      if (!chart.drawn) draw(chart);
      else if (chart.plot.clientWidth) chart.drawn.setSize({width: chart.plot.clientWidth, height: HEIGHT});
    }
  }).observe(el("charts"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
