// Who plays: runs, their checkpoints, where games begin, and who plays which game. The address stores the choice, so that it can be shared.

import { get } from "../data.js";
import { byId, el } from "../dom.js";
import { count, number, when } from "../format.js";

const LARGEST_SEED = 2 ** 31 - 1;
const NEW_GAME = "new game";
let runs = [];

/** Accept a whole number, and show it as such. */
export function seedValue() {
  const field = byId("seed");
  const value = Math.max(0, Math.min(LARGEST_SEED, Math.round(Number(field.value) || 0)));
  if (field.value !== String(value)) field.value = value;
  return value;
}

/** Fill the lists from the server and select what the address names. Returns what is wrong with the address, or "". */
export async function fillRuns() {
  const asked = new URLSearchParams(location.search);
  const answer = await get("/api/runs");
  runs = answer.rows.filter((row) => row.weights);
  const options = () => runs.map((row) => el("option", { value: row.id }, `${row.name} (${row.recipe})`));
  byId("run-0").replaceChildren(el("option", { value: "" }, runs.length ? "choose a run" : "no run has weights yet"), ...options());
  byId("run-1").replaceChildren(el("option", { value: "" }, "none"), ...options());
  const wrong = ["run", "run2"].map((name, k) => {
    const wanted = asked.get(name);
    byId(`run-${k}`).value = runs.some((row) => row.id === wanted) ? wanted : "";
    if (!wanted || byId(`run-${k}`).value) return "";
    return answer.rows.some((row) => row.id === wanted) ? `The run "${wanted}" has no weights to play yet.` : `There is no run "${wanted}" in the runs directory.`;
  });
  if (["first", "second", "each"].includes(asked.get("drive"))) byId("drive").value = asked.get("drive");
  if (asked.has("seed")) byId("seed").value = asked.get("seed");
  seedValue();
  await Promise.all([0, 1].map((k) => fillCheckpoints(k, asked.get(k ? "checkpoint2" : "checkpoint"))));
  if (/^\d{1,4}$/.test(asked.get("start") ?? "")) fillStarts([], asked.get("start"));
  return wrong.filter(Boolean).join(" ");
}

export async function fillCheckpoints(k, wanted = null) {
  const run = byId(`run-${k}`).value;
  const found = run ? (await get("/api/run", { run })).checkpoints : [];
  const words = (one) => (one.id === "weights" ? "newest weights" : `step ${count(one.steps)}`);
  byId(`checkpoint-${k}`).replaceChildren(...found.map((one) => el("option", { value: one.id, title: when(one.time) }, words(one))));
  if (found.some((one) => one.id === wanted)) byId(`checkpoint-${k}`).value = wanted;
  if (k === 0) fillStarts([]);
  else {
    byId("checkpoint-1-field").classList.toggle("hidden", !run);
    byId("drive-field").classList.toggle("hidden", !run);
  }
  allowDrives();
  nameChoices();
}

/** What is cut off can be read by pointing at it. */
function nameChoices() {
  for (const select of document.querySelectorAll(".picker select")) select.title = select.selectedOptions[0]?.textContent ?? "";
}

/** Where games can begin: anew or, with a checkpoint, as they stood in one of its environments. `chosen` is also offered while its checkpoint is being opened. */
export function fillStarts(environments, chosen = "", trouble = null) {
  const known = environments.map(({ steps, score, epsilon }, k) => {
    const facts = [steps === null ? null : `step ${count(steps)}`, score === null ? null : `score ${number(score)}`, `ε ${number(epsilon, 2)}`];
    return el("option", { value: k }, `environment ${k}: ${facts.filter(Boolean).join(", ")}`);
  });
  if (chosen !== "" && !known.length) known.push(el("option", { value: chosen }, `environment ${chosen}`));
  byId("start").replaceChildren(el("option", { value: "" }, NEW_GAME), ...known);
  byId("start").value = chosen;
  byId("start-field").classList.toggle("hidden", ["", "weights"].includes(byId("checkpoint-0").value));
  nameChoices();
  if (trouble) byId("start").title = trouble;
}

/** The environment of the checkpoint in which games begin; null: new games. */
export function startValue() {
  const { value } = byId("start");
  return value === "" || byId("checkpoint-0").value === "weights" ? null : Number(value);
}

/** Agents of different environments cannot look at one game. */
function allowDrives() {
  const [one, other] = [0, 1].map((k) => runs.find((row) => row.id === byId(`run-${k}`).value)?.env);
  const apart = one !== undefined && other !== undefined && one !== other;
  for (const option of byId("drive").options) option.disabled = apart && option.value !== "each";
  if (apart) byId("drive").value = "each";
}

/** [run, checkpoint] of each agent; none if the first is not chosen. */
export function chosenAgents() {
  const chosen = [0, 1].map((k) => [byId(`run-${k}`).value, byId(`checkpoint-${k}`).value]);
  return chosen[0][0] && chosen[0][1] ? chosen.filter(([run, checkpoint]) => run && checkpoint) : [];
}

export function remember() {
  const query = new URLSearchParams();
  const values = { run: byId("run-0").value, checkpoint: byId("checkpoint-0").value, run2: byId("run-1").value, checkpoint2: byId("checkpoint-1").value };
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value);
  if (values.run2) query.set("drive", byId("drive").value);
  if (startValue() !== null) query.set("start", startValue());
  query.set("seed", seedValue());
  history.replaceState(null, "", `/lens?${query}`);
}
