// The lens: an agent plays on the server, and this page shows what it sees, believes and does.

import { get, showLink, socketAddress } from "../data.js";
import { byId, el, save } from "../dom.js";
import { count, when } from "../format.js";
import { Stage } from "./stage.js";
import { decodeMessage, readMoment } from "./wire.js";

const CRITERIA = ["mean", "cvar:0.1", "cvar:0.25", "mean-std:1", "entropic:-0.5"];
const asked = new URLSearchParams(location.search);

let socket = null;
let session = null;
let stage = null;
let agents = [];
let playing = false;
let criteria = [...CRITERIA];
let newest = null; // a moment that waits to be painted
let painting = false;

/** For measurements and tests: what is shown, and when it was painted. */
const lens = { times: [], received: 0, get stage() { return stage; }, get playing() { return playing; } };
globalThis.lens = lens;

const link = showLink(byId("link"));
const send = (command) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(command));
const complain = (text) => { byId("message").textContent = text; };

// --------------------------------------------------------------------- who plays

let runs = [];

async function fillRuns() {
  const answer = await get("/api/runs");
  runs = answer.rows.filter((row) => row.weights);
  const options = () => runs.map((row) => el("option", { value: row.id }, `${row.name} (${row.recipe})`));
  byId("run-0").replaceChildren(el("option", { value: "" }, runs.length ? "choose a run" : "no run has weights yet"), ...options());
  byId("run-1").replaceChildren(el("option", { value: "" }, "nobody"), ...options());
  byId("run-0").value = runs.some((row) => row.id === asked.get("run")) ? asked.get("run") : "";
  byId("run-1").value = runs.some((row) => row.id === asked.get("run2")) ? asked.get("run2") : "";
  if (["first", "second", "each"].includes(asked.get("drive"))) byId("drive").value = asked.get("drive");
  if (/^\d+$/.test(asked.get("seed") ?? "")) byId("seed").value = asked.get("seed");
  await Promise.all([0, 1].map((k) => fillCheckpoints(k, asked.get(k ? "checkpoint2" : "checkpoint"))));
  open();
}

async function fillCheckpoints(k, wanted = null) {
  const run = byId(`run-${k}`).value;
  const found = run ? (await get("/api/run", { run })).checkpoints : [];
  const words = (one) => (one.id === "weights" ? "newest weights" : `checkpoint after ${count(one.steps)} steps`);
  byId(`checkpoint-${k}`).replaceChildren(...found.map((one) => el("option", { value: one.id, title: when(one.time) }, words(one))));
  if (found.some((one) => one.id === wanted)) byId(`checkpoint-${k}`).value = wanted;
  if (k === 1) {
    byId("checkpoint-1-field").classList.toggle("hidden", !run);
    byId("drive-field").classList.toggle("hidden", !run);
  }
}

/** Keep what is shown in the address, so that it can be passed on. */
function remember() {
  const query = new URLSearchParams();
  const values = { run: byId("run-0").value, checkpoint: byId("checkpoint-0").value, run2: byId("run-1").value, checkpoint2: byId("checkpoint-1").value };
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value);
  if (values.run2) query.set("drive", byId("drive").value);
  query.set("seed", byId("seed").value);
  history.replaceState(null, "", `/lens?${query}`);
}

function open() {
  const chosen = [0, 1].map((k) => [byId(`run-${k}`).value, byId(`checkpoint-${k}`).value]).filter(([run, checkpoint]) => run && checkpoint);
  if (!byId("run-0").value || !chosen.length) return;
  complain("");
  remember();
  byId("stage").setAttribute("aria-busy", "true");
  if (!stage) byId("stage").replaceChildren(el("div.empty", {}, "Opening the agent …"));
  send({ do: "pause" });
  send({ do: "open", agents: chosen, drive: byId("drive").value, seed: Number(byId("seed").value), epsilon: Number(byId("epsilon").value) });
}

// ----------------------------------------------------------------- from the server

function connect() {
  socket = new WebSocket(socketAddress("/ws/lens"));
  socket.binaryType = "arraybuffer";
  socket.onopen = () => { link("live"); fillRuns().catch((error) => complain(error.message)); };
  socket.onmessage = (event) => take(decodeMessage(event.data));
  socket.onclose = (event) => {
    link("lost");
    setPlaying(false);
    for (const id of ["play", "step", "new", "save-html", "save-mp4"]) byId(id).disabled = true;
    complain(event.reason || "The connection is lost: reload the page.");
  };
}

function take(message) {
  const { kind } = message.header;
  if (kind === "moment") takeMoment(readMoment(message));
  else if (kind === "opened") opened(message.header);
  else if (kind === "session") session = message.header.id;
  else if (kind === "error" || kind === "ended") {
    complain(message.header.text);
    if (kind === "ended") setPlaying(false);
    if (!stage) byId("stage").replaceChildren(el("div.empty", {}, "This agent cannot be shown."));
  }
}

function opened(header) {
  agents = header.agents;
  const before = stage?.options;
  stage?.close();
  stage = new Stage(byId("stage"), agents, looked);
  if (before) stage.options = before;
  byId("stage").removeAttribute("aria-busy");
  const [one] = agents;
  const notes = [`γ ${one.gamma}`, `φ ${one.phi}`, one.alpha === null ? null : `α ${one.alpha.toFixed(1)}`,
    one.n_step > 1 ? `trained with ${one.n_step}-step targets; the target shown is of one step` : null,
    one.clip_reward ? `rewards clipped at ${one.clip_reward} in targets` : null,
    one.own_target ? "target network of the checkpoint" : "targets by its own network"];
  byId("about").textContent = `${agents.map((agent) => agent.recipe).join(" and ")} on ${one.env} · ${notes.filter(Boolean).join(" · ")}`;
  for (const id of ["play", "step", "new", "save-html", "save-mp4"]) byId(id).disabled = false;
  sendCriteria();
  send({ do: "speed", value: Number(byId("speed").value) });
  send({ do: "play" });
  setPlaying(true);
}

function takeMoment(moment) {
  lens.received += 1;
  if (!stage) return;
  if (!stage.add(moment)) {
    acknowledge(); // the user looks at the past: kept, not shown
    return;
  }
  newest = moment;
  if (!painting) requestAnimationFrame(paint);
  painting = true;
}

/** One picture per frame of the screen, always the newest. */
async function paint(time) {
  newest = null;
  if (await stage.show()) lens.times.push(time);
  if (lens.times.length > 20_000) lens.times.splice(0, 10_000);
  acknowledge();
  painting = newest !== null;
  if (painting) requestAnimationFrame(paint);
}

let acknowledged = 0;

/** Tell the server what has arrived and been dealt with; it keeps only a few under way. */
function acknowledge() {
  while (acknowledged < lens.received) {
    send({ do: "ack" });
    acknowledged += 1;
  }
}

// ----------------------------------------------------------------------- controls

function setPlaying(on) {
  playing = on;
  byId("play").textContent = on ? "Pause" : "Play";
  byId("live").disabled = !stage || stage.live;
}

/** The user looks at the past: the game waits. */
function looked() {
  if (playing) {
    send({ do: "pause" });
    setPlaying(false);
  }
  byId("live").disabled = stage.live;
}

function toggle() {
  if (byId("play").disabled) return;
  if (!playing) toNewest();
  send({ do: playing ? "pause" : "play" });
  setPlaying(!playing);
}

function toNewest() {
  stage.at = stage.moments.length - 1;
  byId("live").disabled = true;
  stage.show();
}

/** Forward: through the past, then by a step of the game. */
function forward() {
  if (byId("step").disabled) return;
  if (!stage.live) {
    stage.scrub(stage.at + 1);
    return;
  }
  send({ do: "step" });
  setPlaying(false);
}

function newGame() {
  toNewest();
  remember();
  send({ do: "new", seed: seedValue() });
}

const seedValue = () => Math.max(0, Math.min(2 ** 31 - 1, Math.round(Number(byId("seed").value) || 0)));

function sendCriteria() {
  const by = byId("by");
  const chosen = criteria.includes(by.value) ? by.value : "mean";
  by.replaceChildren(...criteria.map((name) => el("option", { value: name }, name)));
  by.value = chosen;
  send({ do: "criteria", names: criteria, by: criteria.indexOf(chosen) });
}

function addCriterion(event) {
  if (event.key !== "Enter") return;
  const name = event.target.value.trim();
  if (!name || criteria.includes(name)) return;
  complain("");
  criteria = [...CRITERIA, name];
  sendCriteria();
  event.target.value = "";
}

function choose(kind, value) {
  for (const button of document.querySelectorAll(`[id^="${kind}-"]`)) button.setAttribute("aria-pressed", button.id === `${kind}-${value}`);
  if (!stage) return;
  stage.options[kind] = value;
  stage.redraw();
}

async function exportAs(format) {
  const button = byId(`save-${format}`);
  button.disabled = true;
  const words = button.textContent;
  button.textContent = "making …";
  try {
    const query = new URLSearchParams({ session, format, seconds: byId("seconds").value });
    const answer = await fetch(`/api/export?${query}`);
    if (!answer.ok) throw new Error((await answer.json()).error);
    save(await answer.blob(), /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] ?? `lens.${format}`);
  } catch (error) {
    complain(error.message);
  }
  button.textContent = words;
  button.disabled = false;
}

byId("play").addEventListener("click", toggle);
byId("step").addEventListener("click", forward);
byId("live").addEventListener("click", toNewest);
byId("new").addEventListener("click", newGame);
byId("seed").addEventListener("keydown", (event) => event.key === "Enter" && newGame());
byId("speed").addEventListener("input", (event) => send({ do: "speed", value: Number(event.target.value) }));
byId("epsilon").addEventListener("change", (event) => send({ do: "epsilon", value: Number(event.target.value) }));
byId("by").addEventListener("input", sendCriteria);
byId("criterion").addEventListener("keydown", addCriterion);
for (const value of ["returns", "atoms"]) byId(`space-${value}`).addEventListener("click", () => choose("space", value));
for (const value of ["stems", "cdf"]) byId(`form-${value}`).addEventListener("click", () => choose("form", value));
byId("target").addEventListener("input", (event) => { if (stage) { stage.options.target = event.target.checked; stage.redraw(); } });
for (const format of ["html", "mp4"]) byId(`save-${format}`).addEventListener("click", () => exportAs(format));
for (const k of [0, 1]) {
  byId(`run-${k}`).addEventListener("input", async () => { await fillCheckpoints(k); open(); });
  byId(`checkpoint-${k}`).addEventListener("input", open);
}
byId("drive").addEventListener("input", open);
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = { " ": toggle, ".": forward, ArrowRight: forward, ArrowLeft: () => stage?.scrub(stage.at - 1), n: newGame };
  if (!actions[event.key] || !stage) return;
  event.preventDefault();
  actions[event.key]();
});
connect();
