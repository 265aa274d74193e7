// One run: its curves, settings, passport, log.

import { Chart, smooth, style } from "./chart.js";
import { get, showLink, watchRuns } from "./data.js";
import { byId, color, el } from "./dom.js";
import { count, duration, environments, number, score, setting, when } from "./format.js";

const id = new URLSearchParams(location.search).get("run") ?? "";
let detail = null;
let columns = null; // one row per iteration
let points = null; // the same, and what was recorded between
let episodes = null;
let others = [];
let other = null;
let shownKey = "";

let charts = null; // as the server lists them: {title, unit, color, curves: [{column, label}]}

function makeCharts(listed) {
  charts = listed;
  const games = byId("charts").firstElementChild;
  for (const one of charts) {
    const node = el("div.chart");
    one.panel = el("section.panel", {}, el("h2", {}, one.title, el("span.soft", {}, one.unit)), node);
    byId("charts").insertBefore(one.panel, games);
    one.chart = new Chart(node, { label: `${one.title}: ${one.unit}`, small: true, xFormat: count });
  }
}

function makeGamesChart() {
  const node = el("div.chart");
  byId("charts").append(
    el("section.panel.wide", { id: "games" }, el("h2", {}, "Games", el("span.soft", { id: "games-note" }, "")), node),
    el("section.panel.environments.hidden", { id: "environments", "aria-label": "Environments" },
      el("h2", {}, "Environments", el("span.soft", { id: "environments-note" }, "")), el("div.scroll", {}, el("table", { id: "environments-table" }))),
  );
  gamesChart = new Chart(node, { label: "Score of every whole game over training", small: true, xFormat: count, empty: "no game has ended yet" });
}
let gamesChart = null;

// ------------------------------------------------------------------------ drawing

function drawCharts() {
  if (!columns || !charts) return;
  const axis = byId("axis").value;
  const weight = Number(byId("smoothing").value);
  const logY = byId("log-y").checked;
  const wanted = byId("points").checked && points;
  for (const one of charts) {
    const filled = one.curves.filter(({ column }) => has(columns, column));
    const finer = wanted ? one.curves.filter(({ column }) => has(points, column) && points[column].length > columns[column].length) : [];
    one.panel.classList.toggle("hidden", !filled.length && !finer.length && (columns.steps.length > 0 || points?.steps.length > 0));
    one.chart.options.xLabel = axis;
    const drawn = (from, { column, label }, more) => ({ label, ...style(one.color), dash: null, x: from[axis], y: smooth(from[column], weight), ...more });
    one.chart.set([
      ...finer.map((curve, place) => drawn(points, { ...curve, label: `${curve.label}, finer` }, { width: 1, ...faint(one.color, filled.length > 0), points: points.steps.length < 30 || undefined, band: finer.length === 2 && place === 1 })),
      ...filled.map((curve, place) => drawn(columns, curve, { width: finer.length ? 2 : undefined, points: columns.steps.length < 30 || undefined, band: !finer.length && filled.length === 2 && place === 1 })),
    ], { logX: false, logY });
  }
}

const has = (from, column) => from[column]?.some((value) => value !== null);

/** The color of what lies behind the means of iterations, if there are any. */
const faint = (color, behind) => (behind ? { color: `${style(color).color}73` } : {});

function drawGames() {
  if (!episodes) return;
  const { count: total, score: scores, mean, length, env } = episodes;
  const envs = detail.row.envs;
  const step = episodes.step.map((end, k) => end - (envs - 1 - env[k])); // environments step one after the other
  const place = new Map(step.map((x, k) => [x, k]));
  const game = (x) => `game of environment ${env[place.get(x)]}, ${length[place.get(x)].toLocaleString("en-US")} steps`;
  byId("games-note").textContent = `${total.toLocaleString("en-US")} whole games by step${total > step.length ? `, ${step.length.toLocaleString("en-US")} of them shown` : ""}${episodes.reading ? "; more are being read" : ""}`;
  drawEnvironments();
  gamesChart.options.xLabel = "steps";
  gamesChart.set(total ? [
    { label: "score of one game", color: color("soft"), x: step, y: scores, scatter: true, at: envs > 1 ? game : null },
    { label: "mean of the last 100", ...style(0), dash: null, x: step, y: mean, width: 2 },
  ] : [], { logX: false, logY: byId("log-y").checked });
}

/** How each environment of a run plays; nothing for a run of one. */
function drawEnvironments() {
  const { envs } = episodes;
  const total = detail.row.envs;
  byId("environments").classList.toggle("hidden", !envs.length);
  byId("games").classList.toggle("wide", !envs.length);
  byId("games").classList.toggle("shared", envs.length > 0);
  byId("environments-note").textContent = envs.length < total ? `the first ${envs.length} of ${total.toLocaleString("en-US")}` : "mean of the last 20";
  const titles = [["#", "number of the environment"], ["games", "that have ended"], ["mean", "score of its last 20 games"], ["last", "score of its last game"], ["ε", "probability of a random action now"]];
  const head = el("tr", {}, ...titles.map(([name, title]) => el("th.num", { scope: "col", title }, name)));
  const rows = envs.map((one, k) => el("tr", {}, ...[k, one.games.toLocaleString("en-US"), score(one.mean), score(one.last), number(one.epsilon, 3)].map((text) => el("td.num", {}, text))));
  byId("environments-table").replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
}

const lines = (count) => `${count.toLocaleString("en-US")} ${count === 1 ? "line" : "lines"}`;

function drawHead() {
  const { row } = detail;
  document.title = `${row.name} · C2D`;
  byId("title").textContent = row.name;
  byId("state").replaceChildren(el("span.badge", { "data-state": row.state }, row.state, row.resumable ? el("span.more", {}, "resumable") : null));
  byId("facts").textContent = `${row.recipe} on ${row.env}, seed ${row.seed ?? "–"}, protocol ${row.protocol}${row.envs > 1 ? `, ${environments(row.envs)}` : ""}`;
  const lens = `/lens?run=${encodeURIComponent(row.id)}`;
  byId("lens-link").href = lens;
  byId("actions").replaceChildren(...[
    row.weights ? el("a.button", { href: lens }, "Watch it play") : null,
    el("a.button", { href: `/?run=${encodeURIComponent(row.id)}` }, "Compare with all runs"),
    detail.report ? el("a.button", { href: `/api/report?run=${encodeURIComponent(row.id)}`, target: "_blank", rel: "noopener" }, "Report") : null,
  ].filter(Boolean));
  const trouble = (row.reading ? `Its records are still being read: ${row.records.toLocaleString("en-US")} so far.` : "") || (row.state === "failed" && row.error) || (detail.trouble ? `Its records cannot be read: ${detail.trouble}` : "") || (detail.damaged ? `${lines(detail.damaged)} of its records cannot be read.` : "");
  byId("trouble").textContent = trouble;
  byId("trouble").classList.toggle("hidden", !trouble);
  const of = (from, name) => from?.[name]?.findLast((value) => value !== null) ?? null;
  const last = (name) => of(columns, name) ?? of(points, name);
  const lately = columns?.steps.length ? "last iteration" : "so far";
  const share = row.total ? `${Math.floor((100 * row.steps) / row.total)} %` : "–";
  const tiles = [
    ["score", score(row.score), row.games === null ? "" : `${row.games} games, best ${score(row.best)}`],
    ["progress", share, `${count(row.steps)} of ${count(row.total)} steps`],
    ["frames", count(row.steps * row.frames_per_step), `${row.frames_per_step} per step`],
    ["speed", row.speed ? `${number(row.speed, 3)}` : "–", row.envs > 1 ? "steps/s of all environments" : "steps per second"],
    row.state === "running" ? ["ETA", duration(row.eta), "at this speed"] : ["trained for", duration((last("hours") ?? 0) * 3600), "of iterations"],
    ["loss", number(last("mean_loss"), 3), lately],
    ["atoms", `${number(last("atom_min"), 3)} … ${number(last("atom_max"), 3)}`, "φ-space"],
    last("alpha") === null ? null : ["α", number(last("alpha"), 4), "scale of the support"],
    ["ε", number(last("epsilon"), 3), "random actions"],
    ["memory", last("peak_memory_mb") ? `${Math.round(last("peak_memory_mb"))} MB` : "–", "peak"],
  ].filter(Boolean);
  byId("tiles").replaceChildren(...tiles.map(([what, value, note]) => el(value.length > 10 ? "div.tile.long" : "div.tile", {}, el("div.what", {}, what), el("div.value", {}, value), el("div.note", {}, note))));
}

// ------------------------------------------------------------------------ tables

function pairs(table, entries) {
  table.replaceChildren(el("tbody", {}, ...entries.map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", {}, setting(value))))));
}

function drawSettings() {
  const mine = detail.settings;
  const theirs = other?.settings ?? null;
  const words = byId("find").value.toLowerCase();
  const names = [...new Set([...Object.keys(mine), ...Object.keys(theirs ?? {})])].filter((name) => name.includes(words));
  const differs = (name) => theirs !== null && JSON.stringify(mine[name] ?? null) !== JSON.stringify(theirs[name] ?? null);
  const shown = theirs && byId("only").checked ? names.filter(differs) : names;
  byId("only").closest("label").classList.toggle("hidden", !theirs);
  const head = theirs ? el("thead", {}, el("tr", {}, el("th", {}, "setting"), el("th", {}, "this run"), el("th", {}, other.row.name))) : el("thead");
  const lines = shown.map((name) => el("tr", { class: differs(name) ? "differs" : null }, el("td", {}, name), el("td", {}, setting(mine[name])), theirs ? el("td", {}, setting(theirs[name])) : null));
  if (!lines.length) lines.push(el("tr", {}, el("td", { colspan: 3 }, theirs ? "No setting differs." : "No setting matches.")));
  byId("settings").classList.toggle("two", !theirs);
  byId("settings").replaceChildren(head, el("tbody", {}, ...lines));
}

function drawLog() {
  const entries = detail.events.map((event) => {
    if (event.event === "warning") return [event.time, "warning", String(event.text ?? "")];
    if (event.event === "resumed") {
      const unlike = Array.isArray(event.unlike) && event.unlike.length ? `; exactness is not guaranteed: ${event.unlike.join(", ")}` : "; exact";
      return [event.time, "", `resumed from the checkpoint at step ${count(event.step)}${unlike}`];
    }
    return [event.time, "", String(event.event ?? "event")];
  });
  const { summary, machine } = detail;
  if (summary.state) entries.push([null, summary.state === "failed" ? "bad" : "", `${summary.state} after ${count(summary.steps)} steps${summary.error || summary.reason ? `: ${summary.error || summary.reason}` : ""}`]);
  if (detail.damaged) {
    const named = detail.damage.slice(0, 3).map(({ line, reason }) => `line ${line}: ${reason}`).join("; ");
    entries.push([null, "warning", `${lines(detail.damaged)} of its records cannot be read (${named}${detail.damaged > 3 ? "; …" : ""})`]);
  }
  const { count: all, stride } = detail.records;
  if (stride > 1) entries.push([null, "", `of its ${all.toLocaleString("en-US")} records every ${stride}${stride === 2 ? "nd" : "th"} is drawn, and the last`]);
  entries.unshift([machine.started, "", "started"]);
  byId("log").replaceChildren(...entries.reverse().map(([time, kind, text]) => el("li", {},
    el("span.soft", {}, time ? `${when(time)}  ` : ""), kind ? el(`span.${kind}`, {}, kind === "bad" ? "" : `${kind}: `) : null, el(kind === "bad" ? "span.bad" : "span", {}, text))));
}

function drawEvaluations() {
  const found = detail.evaluations;
  const node = byId("evaluations");
  if (!found.length) {
    node.replaceChildren(el("span.soft", {}, "None yet: c2d evaluate, or c2d train --eval-every, plays whole games and saves their scores here."));
    return;
  }
  const range = (low, high) => (typeof low !== "number" ? "–" : `${score(low)} … ${score(high)}`);
  const rows = found.flatMap((one) => {
    const [low, high] = one.summary.interval ?? [null, null];
    const line = (...cells) => el("tr", {}, el("td", {}, `${count(one.steps)} steps`), ...cells, el("td.num", {}, number(one.summary.games)), el("td.num", {}, number(one.epsilon)));
    const byMean = line(el("td", {}, "mean"), el("td.num", {}, score(one.summary.mean)), el("td", {}, range(low, high)));
    if (!one.risk) return [byMean];
    const gain = `${one.risk.difference > 0 ? "+" : ""}${score(one.risk.difference)} (${range(...one.risk.interval)})`;
    return [byMean, line(el("td", {}, one.risk.criterion), el("td.num", {}, score(one.risk.mean)), el("td", { title: "difference from playing by the mean, with its 95 % interval" }, gain))];
  });
  const head = el("tr", {}, el("th", {}, "after"), el("th", {}, "acting by"), el("th.num", {}, "score"), el("th", { title: "of the score; for another criterion: the difference from playing by the mean, with its interval" }, "95 % interval"), el("th.num", {}, "games"), el("th.num", {}, "ε"));
  node.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function drawCommands() {
  const { row } = detail;
  const path = `${place}/${row.id === "." ? "" : row.id}`.replace(/\/$/, "");
  const quoted = /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
  const own = row.env?.includes(":") ? ` --env ${row.env.replace(/^gym\//, "")}` : ""; // or it is not imported
  const commands = [`c2d evaluate ${quoted}${own}`, `c2d report ${quoted} --out ${quoted}/report`];
  if (row.resumable) commands.unshift(`c2d resume ${quoted}${own}`);
  byId("commands").replaceChildren(...commands.map((text) => {
    const button = el("button", { onclick: async () => { await navigator.clipboard?.writeText(text); button.textContent = "Copied"; } }, "Copy");
    return el("div.command", {}, el("code", {}, text), button);
  }));
}
let place = "";

function drawAll() {
  drawHead();
  drawCharts();
  drawSettings();
  drawLog();
  drawEvaluations();
  drawCommands();
  const { hash, ...facts } = detail.passport;
  byId("hash").textContent = hash ?? "";
  pairs(byId("passport"), Object.entries(facts));
  pairs(byId("machine"), [...Object.entries(detail.machine).filter(([name]) => !["started", "checkpoint"].includes(name)), ...Object.entries(detail.versions)]);
}

// -------------------------------------------------------------------------- live

async function load() {
  const curves = (form) => get("/api/curves", { run: id, ...form }).then((found) => found[id] ?? null);
  const [one, records, finer, games] = await Promise.all([get("/api/run", { run: id }), curves({}), curves({ fine: 1 }), get("/api/episodes", { run: id })]);
  [detail, columns, points, episodes] = [one, records?.columns ?? null, finer?.columns ?? null, games];
  if (finer?.reading) setTimeout(() => load().catch(fail), 500);
  if (!charts) makeCharts(detail.charts);
  drawAll();
  drawGames();
  if (episodes.reading && !waiting) readGames().catch(fail);
}

/** A long list of games arrives in parts. */
async function readGames() {
  waiting = true;
  while (episodes.reading) {
    await new Promise((done) => setTimeout(done, 500));
    episodes = await get("/api/episodes", { run: id });
  }
  waiting = false;
  drawGames();
}
let waiting = false;

function fail(error) {
  byId("title").textContent = "This run cannot be shown";
  byId("trouble").textContent = error.message;
  byId("trouble").classList.remove("hidden");
}

function take(message) {
  for (const row of message.rows) {
    const known = others.findIndex((one) => one.id === row.id);
    if (known >= 0) others[known] = row;
    else others.push(row);
    if (row.id !== id) continue;
    const key = row.reading ? "reading" : `${row.records}:${row.points}:${row.steps}:${row.state}:${row.warnings}`;
    if (key !== shownKey) load().catch(fail);
    shownKey = key;
  }
  const select = byId("other");
  if (select.options.length - 1 !== others.length - 1) {
    const names = others.filter((row) => row.id !== id).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    const chosen = select.value;
    select.replaceChildren(el("option", { value: "" }, "none"), ...names.map((row) => el("option", { value: row.id }, row.name)));
    select.value = chosen;
  }
}

makeGamesChart();
for (const name of ["axis", "points", "smoothing", "log-y"]) byId(name).addEventListener("input", () => { drawCharts(); drawGames(); });
for (const name of ["only", "find"]) byId(name).addEventListener("input", drawSettings);
byId("other").addEventListener("input", async (event) => {
  other = event.target.value ? await get("/api/run", { run: event.target.value }) : null;
  drawSettings();
});
addEventListener("themechange", () => { drawCharts(); drawGames(); });
get("/api/runs").then((answer) => {
  place = answer.root;
  byId("place").textContent = answer.root;
  if (detail) drawCommands();
  if (!answer.rows.some((row) => row.id === id)) fail(new Error("There is no such run in the runs directory."));
});
watchRuns(take, showLink(byId("link")));
