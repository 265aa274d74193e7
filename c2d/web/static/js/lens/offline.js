// The exported file: the same stage, played from the moments in the file itself.

import { byId } from "../dom.js";
import { Stage } from "./stage.js";
import { decodeMessage, readMoment } from "./wire.js";

function readFile() {
  const text = atob(byId("moments").textContent);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k += 1) bytes[k] = text.charCodeAt(k);
  const view = new DataView(bytes.buffer);
  const found = [];
  for (let at = 0; at < bytes.length; at += 4 + view.getUint32(at, true)) {
    found.push(decodeMessage(bytes.buffer.slice(at + 4, at + 4 + view.getUint32(at, true))));
  }
  return found;
}

function playFile() {
  const [opened, ...messages] = readFile();
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    byId("play").textContent = "Play";
  };
  const stage = new Stage(byId("stage"), opened.header.agents, stop);
  for (const message of messages) stage.add(readMoment(message));
  stage.at = 0;
  stage.show();
  globalThis.lens = { stage };
  byId("facts").textContent = `${messages.length.toLocaleString("en-US")} steps; this file needs no network`;

  const advance = () => {
    if (stage.at >= stage.moments.length - 1) {
      stop();
      return;
    }
    stage.at += 1;
    stage.show();
  };
  const play = () => {
    if (timer !== null) {
      stop();
      return;
    }
    if (stage.live) stage.at = 0;
    timer = setInterval(advance, 1000 / Number(byId("speed").value));
    byId("play").textContent = "Pause";
  };
  const choose = (kind, value) => {
    for (const button of document.querySelectorAll(`[id^="${kind}-"]`)) button.setAttribute("aria-pressed", button.id === `${kind}-${value}`);
    stage.options[kind] = value;
    stage.redraw();
  };
  byId("play").addEventListener("click", play);
  byId("step").addEventListener("click", () => stage.scrub(stage.at + 1));
  byId("speed").addEventListener("input", () => { if (timer !== null) { stop(); play(); } });
  for (const value of ["returns", "atoms"]) byId(`space-${value}`).addEventListener("click", () => choose("space", value));
  for (const value of ["stems", "cdf"]) byId(`form-${value}`).addEventListener("click", () => choose("form", value));
  byId("target").addEventListener("input", (event) => { stage.options.target = event.target.checked; stage.redraw(); });
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    dispatchEvent(new Event("themechange"));
  });
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, button")) return;
    const actions = { " ": play, ArrowRight: () => stage.scrub(stage.at + 1), ArrowLeft: () => stage.scrub(stage.at - 1) };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}

playFile();
