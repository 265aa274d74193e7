// The table of all runs, and the learning curves of those selected in it.

import { Chart, sample, smooth, style } from "./chart.js";
import { get, showLink, watchRuns } from "./data.js";
import { byId, el, save, svg } from "./dom.js";
import { count, duration, environments, number, score } from "./format.js";

const FIRST = 5; // runs selected when the page opens
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

const chart = new Chart(byId("chart"), {
  label: "Learning curves of the selected runs", xFormat: count, yFormat: number, yLabel: "mean score of an iteration",
});

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
    const { color, dash } = style(selected.get(id) ?? 0);
    const drawn = dash ? `repeating-linear-gradient(90deg, ${color} 0 4px, transparent 4px 6px)` : color;
    line.querySelector(".swatch").style.background = on ? drawn : "transparent";
  }
  byId("selected").textContent = selected.size ? `${selected.size} selected` : "";
}

// --------------------------------------------------------------------- the chart

async function draw() {
  const wanted = [...selected.keys()].filter((id) => rows.has(id));
  const stale = wanted.filter((id) => curves.get(id)?.key !== keyOf(rows.get(id)));
  for (let k = 0; k < stale.length; k += CHUNK) {
    const part = stale.slice(k, k + CHUNK);
    const keys = new Map(part.map((id) => [id, keyOf(rows.get(id))]));
    const found = await get("/api/curves", { run: part });
    for (const id of part) if (found[id]) curves.set(id, { key: keys.get(id), columns: found[id].columns });
  }
  const games = new Set(wanted.map((id) => rows.get(id).env));
  const env = games.size === 1 ? [...games][0] : null;
  if (env && !publishedOf.has(env)) publishedOf.set(env, await get("/api/published", { env }));
  show(env);
}

const keyOf = (row) => `${row.restarts}:${row.reading ? "reading" : row.records}`;

function show(env) {
  const axis = byId("axis").value;
  const weight = Number(byId("smoothing").value);
  const series = [];
  let furthest = 0;
  for (const [id, k] of selected) {
    const found = curves.get(id);
    if (!found || !rows.has(id)) continue;
    const x = found.columns[axis];
    for (const value of x) furthest = Math.max(furthest, value ?? 0);
    const raw = found.columns.mean_score;
    if (raw.every((value) => value === null)) continue; // no game has ended
    series.push({ label: rows.get(id).name, ...style(k), x, y: smooth(raw, weight), raw, points: x.length < 30 || undefined });
  }
  const figures = env && axis === "frames" ? publishedOf.get(env) ?? [] : [];
  byId("published-field").classList.toggle("hidden", !figures.length);
  byId("extent-field").classList.toggle("hidden", !figures.length || !byId("published").checked);
  if (byId("published").checked) addPublished(series, figures, byId("extent").checked ? furthest : Infinity);
  chart.options.empty = selected.size ? "No game of the selected runs has ended yet: a curve starts with the first complete iteration in which a game ends." : "Select runs in the table to see their learning curves together.";
  chart.options.smoothing = weight;
  chart.options.xLabel = axis;
  chart.options.xFormat = axis === "hours" ? number : count;
  chart.set(series, { logX: byId("log-x").checked, logY: byId("log-y").checked });
  const names = series.slice(0, NAMED).map((one) => el("span.entry", { title: one.label }, sample(one), el("span.label", {}, one.label)));
  if (series.length > NAMED) names.push(el("span.entry.soft", {}, `and ${series.length - NAMED} more`));
  byId("legend").replaceChildren(...names);
}

/** Published agents at the same frames; one point beyond the runs is kept, so that the line continues to the edge. */
function addPublished(series, figures, furthest) {
  const soft = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
  figures.forEach((one, k) => {
    const last = one.frames.findIndex((frames) => frames >= furthest);
    const end = last < 0 ? one.frames.length : last + 1;
    if (furthest !== Infinity && one.frames[0] > furthest * 1.5) return;
    series.push({ label: `${one.agent}, published (mean of ${one.seeds} seeds)`, endLabel: one.agent, color: soft, dash: [[6, 4], [2, 3], [9, 3, 2, 3], [1, 2], [12, 4], [4, 2]][k % 6],
      width: 1.2, points: true, x: one.frames.slice(0, end), y: one.mean.slice(0, end) });
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
  const newest = scored.filter((row) => row.env === scored[0].env).slice(0, FIRST);
  for (const id of asked) awaited.add(id);
  if (!asked.length) for (const row of newest) select(row.id);
}

makeHead();
for (const id of ["filter", "state"]) byId(id).addEventListener("input", arrange);
for (const id of ["axis", "smoothing", "log-x", "log-y", "published", "extent"]) byId(id).addEventListener("input", () => draw());
byId("clear").addEventListener("click", () => { selected.clear(); awaited.clear(); refreshAll(); });
byId("save-png").addEventListener("click", async () => chart.plot && save(await chart.picture("Mean score of whole games per iteration"), "learning-curves.png"));
byId("save-csv").addEventListener("click", () => save(chart.csv(), "learning-curves.csv", "text/csv"));
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    byId("filter").focus();
  }
});
addEventListener("themechange", refreshAll);
show(null);
get("/api/runs").then((answer) => { byId("place").textContent = answer.root; });
watchRuns(take, showLink(byId("link")));
