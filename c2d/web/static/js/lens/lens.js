// The lens: an agent plays on the server, and this page shows what it sees, predicts and does.

import { keepConnected, showLink } from "../data.js";
import { byId, el } from "../dom.js";
import { Criteria } from "./criteria.js";
import { keepAs, showProgress } from "./keep.js";
import { chosenAgents, fillCheckpoints, fillRuns, fillStarts, remember, seedValue, startValue } from "./pick.js";
import { Stage } from "./stage.js";
import { decodeMessage, readMoment } from "./wire.js";

const NEED_AGENT = ["play", "step", "new", "save-html", "save-mp4"]; // controls that need an open agent

let socket = null;
let session = null;
let stage = null;
let playing = false;
let playOnOpen = true; // after a lost connection: as it was before
let epsilon = byId("epsilon").value; // the last one accepted
let complaintLasts = false; // until another agent is chosen
const options = { space: "returns", form: "stems", target: true }; // of the stage
let newest = null; // a moment that waits to be painted
let painting = false;

/** For measurements and tests: what is shown, and when it was painted. */
const lens = { times: [], received: 0, get stage() { return stage; }, get playing() { return playing; } };
globalThis.lens = lens;

const link = showLink(byId("link"));
const send = (command) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(command));
const complain = (text, lasts = false) => { byId("message").textContent = text; complaintLasts = lasts; };
const enable = (on) => { for (const id of NEED_AGENT) byId(id).disabled = !on; };
const criteria = new Criteria(send);

// --------------------------------------------------------------------- who plays

function open() {
  const agents = chosenAgents();
  if (!agents.length) return;
  complain("");
  remember();
  byId("stage").setAttribute("aria-busy", "true");
  if (!stage) byId("stage").replaceChildren(el("div.empty", {}, "Opening the agent …"));
  send({ do: "open", agents, drive: byId("drive").value, seed: seedValue(), epsilon: Number(epsilon), start: startValue() });
}

async function pickAgain() {
  try {
    const wrong = await fillRuns();
    open();
    if (wrong) complain(wrong, true);
  } catch (error) {
    complain(error.message);
  }
}

/** Clear the stage: the requested agent cannot be shown, and the one shown before was not requested. */
function leave(why) {
  stage?.close();
  stage = null;
  byId("about").textContent = "";
  byId("stage").removeAttribute("aria-busy");
  byId("stage").replaceChildren(el("div.empty", {}, why));
  enable(false);
  setPlaying(false);
}

// ----------------------------------------------------------------- from the server

function begin(made) {
  socket = made;
  socket.onmessage = (event) => take(decodeMessage(event.data));
}

function lost(event) {
  if (byId("link").dataset.state === "live" && stage) playOnOpen = playing;
  link("lost");
  setPlaying(false);
  enable(false);
  complain(event.reason || "Connection lost; reconnecting.");
}

function take(message) {
  const { header } = message;
  const { kind } = header;
  if (kind === "moment") takeMoment(readMoment(message));
  else if (kind === "opened") opened(header);
  else if (kind === "begun") begun(header);
  else if (kind === "session") welcomed(header.id);
  else if (kind === "progress") showProgress(header);
  else if (kind === "done") done(header.about);
  else if (kind === "error") rejected(header);
  else if (kind === "ended") {
    complain(header.text);
    enable(false);
    setPlaying(false);
  }
}

/** Set up a connection: the first one, or one after a loss. */
function welcomed(id) {
  session = id;
  lens.received = 0;
  acknowledged = 0;
  link("live");
  complain("");
  pickAgain();
}

/** The next success removes a message. */
function done(about) {
  if (about === "criteria") criteria.accept();
  if (about === "epsilon") epsilon = byId("epsilon").value;
  if (!complaintLasts) complain("");
}

function rejected({ about, text, playing: goesOn }) {
  complain(text);
  if (about === "open") leave("This agent cannot be shown.");
  if (about === "criteria") criteria.reject();
  if (about === "epsilon") byId("epsilon").value = epsilon;
  if (goesOn === false) setPlaying(false);
}

function opened(header) {
  stage?.close();
  stage = new Stage(byId("stage"), header.agents, looked);
  stage.options = options;
  byId("stage").removeAttribute("aria-busy");
  byId("about").textContent = header.agents.map((agent) => `${agent.recipe} on ${agent.env}`).join(" vs. ");
  enable(true);
  criteria.tell();
  send({ do: "speed", value: Number(byId("speed").value) });
  send({ do: playOnOpen ? "play" : "step" });
  setPlaying(playOnOpen);
  playOnOpen = true;
}

/** Games have begun: where, and if not where they should, why. */
function begun({ start, notice }) {
  if (!stage) return;
  const [{ environments, trouble }] = stage.agents;
  fillStarts(environments, start === null ? "" : String(start), trouble);
  byId("new").textContent = start === null ? "New game" : "Start again";
  remember();
  if (notice) complain(notice, true);
}

function takeMoment(moment) {
  lens.received += 1;
  if (!stage) {
    acknowledge();
    return;
  }
  if (!stage.add(moment)) {
    acknowledge(); // the user looks at the past: kept, not shown
    return;
  }
  newest = moment;
  if (!painting) requestAnimationFrame(paint);
  painting = true;
}

/** Paint once per frame of the screen, always the newest moment. */
async function paint(time) {
  newest = null;
  if (await stage?.show()) lens.times.push(time);
  if (lens.times.length > 20_000) lens.times.splice(0, 10_000);
  acknowledge();
  painting = newest !== null;
  if (painting) requestAnimationFrame(paint);
}

let acknowledged = 0;

/** Acknowledge a moment; the server sends only a few ahead. */
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
  if (byId("new").disabled) return;
  toNewest();
  complain("");
  remember();
  send({ do: "new", seed: seedValue(), start: startValue() });
}

function changeEpsilon(event) {
  const { value } = event.target;
  if (value.trim() === "" || !Number.isFinite(Number(value))) rejected({ about: "epsilon", text: "ε is not a number; accepted: a number from 0 to 1" });
  else if (stage) send({ do: "epsilon", value: Number(value) });
  else if (Number(value) >= 0 && Number(value) <= 1) done("epsilon");
  else rejected({ about: "epsilon", text: `ε is ${value}; accepted: a number from 0 to 1` });
}

function choose(kind, value) {
  for (const button of document.querySelectorAll(`[id^="${kind}-"]`)) button.setAttribute("aria-pressed", button.id === `${kind}-${value}`);
  options[kind] = value;
  stage?.redraw();
}

byId("play").addEventListener("click", toggle);
byId("step").addEventListener("click", forward);
byId("live").addEventListener("click", toNewest);
byId("new").addEventListener("click", newGame);
byId("seed").addEventListener("keydown", (event) => event.key === "Enter" && newGame());
byId("seed").addEventListener("change", seedValue);
byId("speed").addEventListener("input", (event) => send({ do: "speed", value: Number(event.target.value) }));
byId("epsilon").addEventListener("change", changeEpsilon);
for (const value of ["returns", "atoms"]) byId(`space-${value}`).addEventListener("click", () => choose("space", value));
for (const value of ["stems", "cdf"]) byId(`form-${value}`).addEventListener("click", () => choose("form", value));
byId("target").addEventListener("input", (event) => { options.target = event.target.checked; stage?.redraw(); });
for (const format of ["html", "mp4"]) keepAs(format, () => session, complain);
for (const k of [0, 1]) {
  byId(`run-${k}`).addEventListener("input", async () => { await fillCheckpoints(k); open(); });
  byId(`checkpoint-${k}`).addEventListener("input", () => { if (!k) fillStarts([], byId("start").value); open(); });
}
byId("start").addEventListener("input", newGame);
byId("drive").addEventListener("input", open);
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = { " ": toggle, ".": forward, ArrowRight: forward, ArrowLeft: () => stage?.scrub(stage.at - 1), n: newGame };
  if (!actions[event.key] || !stage) return;
  event.preventDefault();
  actions[event.key]();
});
keepConnected("/ws/lens", begin, lost);
