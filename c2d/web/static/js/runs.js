// The table of all runs, and the learning curves of those selected in it.

import { Chart, csv, sample, smooth, stacked, style } from "./chart.js";
import { get, showLink, watchRuns } from "./data.js";
import { byId, el, save, svg } from "./dom.js";
import { count, duration, environments, number, score } from "./format.js";
import { average, grouped, nameGroups } from "./seeds.js";

const FIRST = 5; // runs selected when the page opens, and others of their seeds
const MOST_FIRST = 30; // of both together
const FEW = 20; // iterations: shorter runs are drawn with all their points, if nobody chooses
const SINGLE = 30; // points of a curve that are drawn as such
const AGAIN = 400; // ms until a long file is read further
const AXES = ["frames", "updates", "hours"];
const NAMED = 16; // curves named in the legend
const CHUNK = 20; // runs whose curves are requested at once

const rows = new Map(); // id -> row of the server
const lines = new Map(); // id -> its element in the table
const curves = new Map(); // id -> {key, columns}
const publishedOf = new Map(); // env -> curves
const selected = new Map(); // id -> number of its color
const awaited = new Set(); // named by the address, but not found yet: a run that has just started
let order = { key: "name", down: false };
let began = false;
const charts = new Map(); // env -> {cell, legend, chart}
const colors = new Map(); // id -> number of the color of its curve
let visibleCharts = [];

// ------------------------------------------------------------------- the table

const COLUMNS = [
  { key: "name", title: "run", value: (r) => r.name },
  { key: "recipe", title: "recipe", value: (r) => r.recipe },
  { key: "env", title: "environment", value: (r) => r.env },
  { key: "seed", title: "seed", value: (r) => r.seed ?? -1, num: true },
  { key: "state", title: "state", value: (r) => ["running", "failed", "stopped", "finished"].indexOf(r.state) },
  { key: "progress", title: "progress", value: (r) => r.steps / (r.total || Infinity) },
  { key: "score", title: "score", value: (r) => r.score ?? -Infinity, num: true, first: "down" },
  { key: "spark", title: "curve", value: null },
  { key: "speed", title: "steps/s", value: (r) => r.speed ?? -1, num: true, first: "down" },
  { key: "eta", title: "ETA", value: (r) => r.eta ?? Infinity, num: true },
  { key: "lens", title: "", value: null },
];

function makeHead() {
  const all = el("input", { type: "checkbox", "aria-label": "Select all runs shown", onchange: (event) => {
    for (const row of visible()) if (event.target.checked) select(row.id); else selected.delete(row.id);
    refreshAll();
  } });
  const cells = COLUMNS.map((column) => {
    const cell = el(column.num ? "th.num" : "th", { scope: "col", "data-key": column.key });
    if (!column.value) cell.append(column.title);
    else cell.append(el("button", { onclick: () => sortBy(column) }, column.title));
    return cell;
  });
  byId("table").tHead.rows[0].replaceChildren(el("th", { scope: "col" }, all), ...cells);
  markOrder();
}

function sortBy(column) {
  const same = order.key === column.key;
  order = { key: column.key, down: same ? !order.down : column.first === "down" };
  markOrder();
  arrange();
}

function markOrder() {
  for (const cell of byId("table").tHead.rows[0].cells) {
    if (cell.dataset.key === order.key) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
}

function makeLine(id) {
  const box = el("input", { type: "checkbox", onchange: () => toggle(id), onkeydown: (event) => move(event) });
  const line = el("tr", { "data-id": id }, el("td", {}, box), ...COLUMNS.map((c) => el(c.num ? "td.num" : "td", { "data-key": c.key })));
  line.addEventListener("click", (event) => {
    if (event.target.closest("a, input, button") || getSelection().toString()) return;
    toggle(id);
  });
  return line;
}

/** The up and down keys move from box to box. */
function move(event) {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (!step) return;
  event.preventDefault();
  event.target.closest("tr")[step]?.querySelector("input")?.focus();
}

function fill(line, row) {
  const cell = Object.fromEntries([...line.cells].filter((c) => c.dataset.key).map((c) => [c.dataset.key, c]));
  const swatch = el("span.swatch");
  cell.name.className = "name";
  cell.name.title = row.name;
  cell.name.replaceChildren(swatch, el("a", { href: `/run?run=${encodeURIComponent(row.id)}` }, row.name));
  cell.recipe.textContent = row.recipe;
  const together = row.envs > 1 ? environments(row.envs) : "";
  cell.env.textContent = row.env;
  cell.env.title = together && `${together} in lock-step`;
  cell.seed.textContent = row.seed ?? "–";
  const more = row.reading ? "still reading" : row.resumable ? "resumable" : row.warnings ? `${row.warnings} ${row.warnings === 1 ? "warning" : "warnings"}` : "";
  cell.state.replaceChildren(el("span.badge", { "data-state": row.state, title: row.error || null }, row.state, more ? el("span.more", {}, more) : null));
  cell.progress.replaceChildren(...progress(row));
  cell.score.textContent = score(row.score);
  cell.score.title = row.games === null ? "" : `mean of ${row.games} games of the last iteration; best iteration ${score(row.best)}`;
  cell.spark.replaceChildren(spark(row.spark));
  cell.speed.textContent = row.speed ? number(row.speed, 3) : "–";
  cell.speed.title = together && `of all ${together} together`;
  cell.eta.textContent = duration(row.eta);
  cell.lens.replaceChildren(row.weights ? el("a", { href: `/lens?run=${encodeURIComponent(row.id)}`, "aria-label": `Watch ${row.name} play` }, "watch") : "");
  line.querySelector("input").setAttribute("aria-label", `Show the curve of ${row.name}`);
}

export function progress(row) {
  const share = row.total ? Math.min(1, row.steps / row.total) : 0;
  const fillBar = el("span");
  fillBar.style.width = `${100 * share}%`;
  return [el("span.progress", { "aria-hidden": "true" }, fillBar),
    el("span.num", { title: `${row.steps.toLocaleString("en-US")} of ${row.total.toLocaleString("en-US")} steps` }, `${Math.floor(100 * share)} %`)];
}

function spark(values) {
  const picture = svg("svg", { class: "spark", viewBox: "0 0 84 20", "aria-hidden": "true" });
  if (values.length > 1) {
    const low = Math.min(...values);
    const span = Math.max(...values) - low || 1;
    const points = values.map((v, k) => `${(1 + (82 * k) / (values.length - 1)).toFixed(1)},${(18 - (16 * (v - low)) / span).toFixed(1)}`);
    picture.append(svg("polyline", { points: points.join(" ") }));
  }
  return picture;
}

function visible() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = byId("state").value;
  const column = COLUMNS.find((c) => c.key === order.key);
  const found = [...rows.values()].filter((row) => {
    const text = `${row.name} ${row.recipe} ${row.env} seed${row.seed} ${row.state}`.toLowerCase();
    if (state && (state === "resumable" ? !row.resumable : row.state !== state)) return false;
    return words.every((word) => text.includes(word));
  });
  const names = new Intl.Collator("en", { numeric: true });
  found.sort((a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    const by = typeof x === "string" ? names.compare(x, y) : x - y;
    return (order.down ? -by : by) || names.compare(a.name, b.name);
  });
  return found;
}

/** Put the lines in order; lines in the right place are not moved. */
function arrange() {
  const body = byId("table").tBodies[0];
  const shown = visible();
  const wanted = new Set(shown.map((row) => row.id));
  for (const line of [...body.rows]) if (!wanted.has(line.dataset.id)) line.remove();
  shown.forEach((row, place) => {
    const line = lines.get(row.id);
    if (body.rows[place] !== line) body.insertBefore(line, body.rows[place] ?? null);
  });
  byId("shown").textContent = shown.length === rows.size ? `${rows.size} ${rows.size === 1 ? "run" : "runs"}` : `${shown.length} of ${rows.size} runs`;
  const empty = byId("empty");
  empty.classList.toggle("hidden", shown.length > 0);
  empty.textContent = rows.size ? "No run matches the filter." : "No runs here yet. Train one with c2d train minatar/breakout: it will appear here.";
}

// ------------------------------------------------------------------ the selection

function select(id) {
  if (selected.has(id)) return;
  const taken = new Set(selected.values());
  let k = 0;
  while (taken.has(k)) k += 1;
  selected.set(id, k);
}

function toggle(id) {
  if (selected.has(id)) selected.delete(id);
  else select(id);
  refreshAll();
}

function refreshAll() {
  markSelection();
  draw();
}

function markSelection() {
  for (const [id, line] of lines) {
    const on = selected.has(id);
    line.setAttribute("aria-selected", on);
    line.querySelector("input").checked = on;
    const { color, dash } = style(colors.get(id) ?? selected.get(id) ?? 0);
    const drawn = dash ? `repeating-linear-gradient(90deg, ${color} 0 4px, transparent 4px 6px)` : color;
    line.querySelector(".swatch").style.background = on ? drawn : "transparent";
  }
  byId("selected").textContent = selected.size ? `${selected.size} selected` : "";
}

// -------------------------------------------------------------------- the charts

const fine = () => {
  const wanted = byId("points").value;
  const most = Math.max(0, ...[...selected.keys()].map((id) => rows.get(id)?.records ?? 0));
  return wanted === "fine" || (wanted === "auto" && most < FEW);
};

/** By which the curve of a run is known to be the newest: it was recorded in this form, and so far. */
const keyOf = (row) => [row.restarts, row.reading ? "reading" : row.records, fine() ? row.points : "", byId("metric").value].join(":");

async function draw() {
  const wanted = [...selected.keys()].filter((id) => rows.has(id));
  const stale = wanted.filter((id) => curves.get(id)?.key !== keyOf(rows.get(id)));
  for (let k = 0; k < stale.length; k += CHUNK) {
    const part = stale.slice(k, k + CHUNK);
    const keys = new Map(part.map((id) => [id, keyOf(rows.get(id))]));
    const found = await get("/api/curves", { run: part, column: [...AXES, byId("metric").value], ...(fine() ? { fine: 1 } : {}) });
    for (const id of part) if (found[id]) curves.set(id, { key: found[id].reading ? "part" : keys.get(id), columns: found[id].columns });
    if (part.some((id) => found[id]?.reading)) setTimeout(draw, AGAIN);
  }
  const envs = new Set(wanted.map((id) => rows.get(id).env));
  for (const env of envs) if (!publishedOf.has(env)) publishedOf.set(env, await get("/api/published", { env }));
  show();
}

/** One chart per environment: scores of unlike games have no common scale. */
function show() {
  const shown = [...selected.keys()].filter((id) => rows.has(id) && curves.has(id)).map((id) => rows.get(id));
  const groups = grouped(shown, byId("grouping").checked);
  nameGroups(groups);
  paint(groups);
  const drawn = new Map(); // env -> series
  for (const group of groups) {
    const { env } = group.rows[0];
    if (!drawn.has(env)) drawn.set(env, []);
    drawn.get(env).push(...curvesOf(group));
  }
  const envs = [...drawn.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const figured = byId("axis").value === "frames" && byId("metric").value === "mean_score" ? envs.filter((env) => publishedOf.get(env)?.length) : [];
  byId("published-field").classList.toggle("hidden", !figured.length);
  byId("extent-field").classList.toggle("hidden", !figured.length || !byId("published").checked);
  if (byId("published").checked) {
    for (const env of figured) addPublished(drawn.get(env), publishedOf.get(env), byId("extent").checked ? furthest(shown.filter((row) => row.env === env)) : Infinity);
  }
  place(envs.length ? envs : [""], drawn);
}

/** Colors of runs in the table and of their curves: of one group the same, also on other environments. */
function paint(groups) {
  colors.clear();
  const names = new Map();
  for (const group of groups) {
    group.place = group.rows.length === 1 ? selected.get(group.rows[0].id) : names.get(group.name) ?? selected.get(group.rows[0].id);
    if (group.rows.length > 1) names.set(group.name, group.place);
    for (const row of group.rows) colors.set(row.id, group.place);
  }
  markSelection();
}

function curvesOf(group) {
  const axis = byId("axis").value;
  const weight = Number(byId("smoothing").value);
  const metric = byId("metric").value;
  const members = group.rows.map((row) => ({ x: curves.get(row.id).columns[axis] ?? [], raw: curves.get(row.id).columns[metric] ?? [] }))
    .filter(({ raw }) => raw.some((value) => (value ?? null) !== null));
  const line = { ...style(group.place), points: undefined };
  if (!members.length) return [];
  if (group.rows.length === 1) {
    const [{ x, raw }] = members;
    return [{ ...line, label: group.name, x, y: smooth(raw, weight), raw, points: x.length < SINGLE || undefined }];
  }
  const seeds = average(members.map(({ x, raw }) => ({ x, y: smooth(raw, weight) })));
  const bare = average(members.map(({ x, raw }) => ({ x, y: raw })));
  const label = `${group.name} (${members.length} ${members.length === 1 ? "seed" : "seeds"}${seeds.left < members.length ? `, ${seeds.left} to the end` : ""})`;
  const edge = { ...line, width: 0.4, dash: null, quiet: true, x: seeds.x };
  return [
    { ...edge, label: `${label}, lowest`, y: seeds.low, raw: bare.low },
    { ...edge, label: `${label}, highest`, y: seeds.high, raw: bare.high, band: true },
    { ...line, label: `${label}, mean`, x: seeds.x, y: seeds.mean, raw: bare.mean, width: 2, points: seeds.x.length < SINGLE || undefined },
  ];
}

const furthest = (shown) => Math.max(0, ...shown.flatMap((row) => (curves.get(row.id).columns.frames ?? []).filter((value) => value !== null)));

/** Charts in order, one per environment; those of environments that are no longer shown are kept for later. */
function place(envs, drawn) {
  const node = byId("chart");
  node.classList.toggle("several", envs.length > 1);
  const metric = byId("metric").selectedOptions[0];
  byId("what").textContent = [metric.dataset.unit?.replace(" per iteration", ""), fine() ? "up to 50 points per iteration" : "one point per iteration"].filter(Boolean).join(" · ");
  const cells = envs.map((env) => {
    if (!charts.has(env)) {
      const plot = el("div.plot");
      const legend = el("div.legend", { "aria-hidden": "true" });
      const cell = el("section", {}, el("h3", {}, env), plot, legend);
      charts.set(env, { cell, legend, chart: new Chart(plot, { label: `Learning curves on ${env || "no environment yet"}`, name: env }) });
    }
    return charts.get(env);
  });
  if ([...node.children].some((child, k) => child !== cells[k]?.cell) || node.children.length !== cells.length) node.replaceChildren(...cells.map(({ cell }) => cell));
  cells.forEach(({ chart, legend }, k) => {
    const series = drawn.get(envs[k]) ?? [];
    const axis = byId("axis").value;
    Object.assign(chart.options, { smoothing: Number(byId("smoothing").value), xLabel: axis, xFormat: axis === "hours" ? number : count, yLabel: metric.textContent,
      empty: !selected.size ? "Select runs in the table to see their curves together." : !drawn.size ? "Reading the curves …"
        : metric.value === "mean_score" ? "No game of the selected runs has ended yet: a curve starts where the first game ends." : "None of the selected runs has recorded this." });
    chart.set(series, { logX: byId("log-x").checked, logY: byId("log-y").checked });
    const named = series.filter((one) => !one.quiet);
    const names = named.slice(0, NAMED).map((one) => el("span.entry", { title: one.label }, sample(one), el("span.label", {}, one.label)));
    if (named.length > NAMED) names.push(el("span.entry.soft", {}, `and ${named.length - NAMED} more`));
    legend.replaceChildren(...names);
  });
  visibleCharts = cells.map(({ chart }) => chart);
  byId("band").classList.toggle("hidden", ![...drawn.values()].flat().some((one) => one.band));
}

/** Published agents at the same frames; one point beyond the runs is kept, so that the line continues to the edge. */
function addPublished(series, figures, end) {
  const soft = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
  figures.forEach((one, k) => {
    const last = one.frames.findIndex((frames) => frames >= end);
    const kept = last < 0 ? one.frames.length : last + 1;
    if (end !== Infinity && one.frames[0] > end * 1.5) return;
    series.push({ label: `${one.agent}, published (mean of ${one.seeds} seeds)`, endLabel: one.agent, color: soft, dash: [[6, 4], [2, 3], [9, 3, 2, 3], [1, 2], [12, 4], [4, 2]][k % 6],
      width: 1.2, points: true, x: one.frames.slice(0, kept), y: one.mean.slice(0, kept) });
  });
}

// ------------------------------------------------------------------------- live

function take(message, first) {
  if (first) {
    const there = new Set(message.rows.map((row) => row.id));
    for (const id of rows.keys()) if (!there.has(id)) forget(id);
  }
  for (const id of message.gone) forget(id);
  for (const row of message.rows) {
    rows.set(row.id, row);
    if (!lines.has(row.id)) lines.set(row.id, makeLine(row.id));
    fill(lines.get(row.id), row);
  }
  arrange();
  if (!began && rows.size) begin();
  for (const row of message.rows) if (awaited.delete(row.id)) select(row.id);
  markSelection();
  if (message.rows.some((row) => selected.has(row.id)) || message.gone.length) draw();
}

function forget(id) {
  rows.delete(id);
  lines.get(id)?.remove();
  lines.delete(id);
  selected.delete(id);
}

/** The initial selection: the runs in the address, otherwise the runs on the environment of the newest run. */
function begin() {
  began = true;
  const asked = new URLSearchParams(location.search).getAll("run");
  const scored = [...rows.values()].filter((row) => row.spark.length).sort((a, b) => (b.started ?? 0) - (a.started ?? 0));
  const some = scored.filter((row) => row.env === scored[0].env).slice(0, FIRST);
  const newest = scored.filter((row) => some.includes(row) || some.some((one) => one.group === row.group)).slice(0, MOST_FIRST);
  for (const id of asked) awaited.add(id);
  if (!asked.length) for (const row of newest) select(row.id);
}

makeHead();
for (const id of ["filter", "state"]) byId(id).addEventListener("input", arrange);
for (const id of ["metric", "axis", "points", "grouping", "smoothing", "log-x", "log-y", "published", "extent"]) byId(id).addEventListener("input", () => draw());
byId("clear").addEventListener("click", () => { selected.clear(); awaited.clear(); refreshAll(); });
byId("save-png").addEventListener("click", async () => {
  const drawn = visibleCharts.filter((chart) => chart.plot);
  const metric = byId("metric").selectedOptions[0].textContent;
  const pictures = drawn.map((chart) => chart.picture(`${metric[0].toUpperCase()}${metric.slice(1)} · ${chart.options.name}`));
  if (drawn.length) save(await stacked(pictures), "learning-curves.png");
});
byId("save-csv").addEventListener("click", () => save(csv(visibleCharts), "learning-curves.csv", "text/csv"));
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    byId("filter").focus();
  }
});
addEventListener("themechange", refreshAll);
show();
get("/api/runs").then((answer) => {
  byId("place").textContent = answer.root;
  const metrics = answer.charts.flatMap(({ unit, curves: drawn }) => drawn.map(({ column, label }) => [column, label, unit]));
  const chosen = byId("metric").value;
  byId("metric").replaceChildren(...metrics.map(([column, label, unit]) => el("option", { value: column, "data-unit": unit }, label)));
  byId("metric").value = chosen;
});
watchRuns(take, showLink(byId("link")));
