// What the lens shows of one moment: frames, return distributions, criteria, the value over time. Used live and in exported files.

import { color, el } from "../dom.js";
import { number, score } from "../format.js";
import { LawsView, describeAtom, isLegal } from "./laws.js";
import { TraceView } from "./trace.js";

const KEPT = 5_400; // moments: six minutes at 15 steps per second
const CALM = 150; // moments that the axis covers, so that it does not jump

/** How an agent was trained, as far as it matters for what is shown. */
function notesOn(agent) {
  return [`γ ${agent.gamma}`, `φ ${agent.phi}`, agent.alpha === null ? null : `α ${number(agent.alpha, 4)}`,
    agent.n_step > 1 ? `trained with ${agent.n_step}-step targets; the target shown is that of one step` : null,
    agent.clip_reward ? `rewards clipped at ${agent.clip_reward} in targets` : null,
    agent.own_target ? "target network of the checkpoint" : "targets by its own network"].filter(Boolean);
}

export class Stage {
  /** agents: as the worker describes them; onScrub(): the user looks at the past */
  constructor(root, agents, onScrub = () => {}) {
    this.root = root;
    this.agents = agents;
    this.onScrub = onScrub;
    this.moments = [];
    this.at = -1; // the moment to be shown
    this.shown = null; // the moment on the screen: its frame and distributions always belong together
    this.options = { space: "returns", form: "stems", target: true };
    this.marked = null; // {seat, action, atom} under the pointer or the keys
    this.painted = 0;
    this.wanted = 0; // guards against frames that were decoded too late
    this.build();
    this.resizer = new ResizeObserver(() => this.redraw());
    this.resizer.observe(this.lawsNode);
    this.onTheme = () => this.redraw();
    addEventListener("themechange", this.onTheme);
  }

  close() {
    this.resizer.disconnect();
    removeEventListener("themechange", this.onTheme);
  }

  // ----------------------------------------------------------------------- elements

  build() {
    this.screens = [];
    this.criteria = el("table.criteria", { "aria-label": "What each criterion would choose" });
    this.picturesNode = el("div.pictures");
    this.lawsNode = el("div.laws", { "data-seats": this.agents.length });
    this.seats = this.agents.map((agent, k) => this.buildSeat(agent, k));
    this.lawsNode.append(...this.seats.map((seat) => seat.node));
    const traceCanvas = el("canvas.trace", { role: "img", "aria-label": "Value of the executed action over the last minutes" });
    this.trace = new TraceView(traceCanvas, (share) => this.scrub(Math.round(share * (this.moments.length - 1))));
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Look back through the last minutes" });
    this.slider.addEventListener("input", () => this.scrub(Number(this.slider.value)));
    this.whereNode = el("span.where.num", { role: "status" });
    this.legendNode = el("span.soft");
    this.root.replaceChildren(this.picturesNode, this.lawsNode,
      el("div.past", {}, el("div.past-head", {}, this.legendNode, this.whereNode), traceCanvas, this.slider));
  }

  buildSeat(agent, k) {
    const canvas = el("canvas.law", { tabindex: 0, role: "img", "aria-label": `Return distribution of each action, ${agent.recipe}. Arrow keys read atoms.` });
    const tip = el("div.tip");
    const reading = el("div.reading", { "aria-live": "polite" });
    const swatch = el("span.swatch", { class: this.agents.length > 1 ? `swatch seat-${k}` : "hidden" });
    const title = el("div.seat-title", {}, swatch, el("strong", {}, agent.recipe), el("span.soft", {}, ` ${agent.run} · ${notesOn(agent).join(" · ")}`));
    const node = el("section.seat", { "aria-label": `Agent ${k + 1}: ${agent.recipe}` }, title, el("div.law-frame", {}, canvas, tip), reading);
    const seat = { node, canvas, tip, reading, view: new LawsView(canvas) };
    canvas.addEventListener("pointermove", (event) => {
      const found = seat.view.find(event.offsetX, event.offsetY);
      this.mark(found && { seat: k, ...found }, event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerleave", () => this.mark(null));
    canvas.addEventListener("blur", () => this.mark(null));
    canvas.addEventListener("keydown", (event) => this.moveMark(event, k));
    return seat;
  }

  /** Screens are created when the first moment says how many games there are. */
  buildScreens(games) {
    this.screens = games.map((game, k) => {
      const canvas = el("canvas.screen", { role: "img", "aria-label": `Frame of game ${k + 1}` });
      const facts = el("div.facts");
      const caption = el("div.caption");
      return { canvas, facts, caption, node: el("figure.game", {}, canvas, caption, facts) };
    });
    this.picturesNode.dataset.games = games.length;
    this.legendNode.replaceChildren(...this.legend(games.length));
    this.picturesNode.replaceChildren(...this.screens.map((screen) => screen.node), this.criteria);
  }

  /** What the curve below shows; with two games, whose rewards and whose axis. */
  legend(games) {
    const rest = " · ticks: rewards · lines: ends of games · steps back from the newest";
    if (games < 2) return [`value of the executed action${rest}`];
    const name = (k) => el("span", {}, el("span.swatch", { class: `swatch seat-${k}` }), this.agents[k].recipe);
    return ["value of the executed action: ", name(0), " (left axis, lower ticks) ", name(1), ` (right axis, upper ticks)${rest}`];
  }

  // ------------------------------------------------------------------------ history

  /** Add a new moment; it is shown at once unless the user looks at the past. */
  add(moment) {
    const atEnd = this.at === this.moments.length - 1;
    this.moments.push(moment);
    if (this.moments.length > KEPT + 100) {
      const gone = this.moments.length - KEPT;
      this.moments.splice(0, gone);
      this.at = Math.max(-1, this.at - gone);
    }
    if (atEnd) this.at = this.moments.length - 1;
    return atEnd;
  }

  scrub(place) {
    if (!this.moments.length) return;
    this.at = Math.min(this.moments.length - 1, Math.max(0, place));
    this.onScrub();
    this.show();
  }

  get live() {
    return this.at === this.moments.length - 1;
  }

  get current() {
    return this.moments[this.at] ?? null;
  }

  // ------------------------------------------------------------------------ drawing

  /** Paint the moment at `at`: decode its frames first, so that frame and distributions belong together. */
  async show() {
    const moment = this.current;
    if (!moment) return false;
    this.wanted += 1;
    const ticket = this.wanted;
    const pictures = await Promise.all(moment.games.map((game) => (game.png?.length ? createImageBitmap(new Blob([game.png], { type: "image/png" })) : null)));
    if (ticket !== this.wanted) return false;
    this.shown = moment;
    if (this.screens.length !== moment.games.length) this.buildScreens(moment.games);
    moment.games.forEach((game, k) => this.drawGame(this.screens[k], game, pictures[k], moment));
    this.redraw();
    this.painted += 1;
    return true;
  }

  drawGame(screen, game, picture, moment) {
    screen.canvas.classList.toggle("hidden", !picture);
    if (picture) {
      if (screen.canvas.width !== picture.width || screen.canvas.height !== picture.height) {
        screen.canvas.width = picture.width;
        screen.canvas.height = picture.height;
      }
      screen.canvas.getContext("2d").drawImage(picture, 0, 0);
      picture.close();
    }
    const name = this.agents[game.driver].actions[game.action] ?? game.action;
    const reward = game.reward ? ` · reward ${number(game.reward)}` : "";
    screen.caption.textContent = game.notice ?? `${name}${game.random ? " (random)" : ""}${reward}${game.ended ? ` · game over at ${score(game.ended.score)}` : ""}`;
    screen.facts.textContent = `score ${number(game.score, 5)} · step ${game.step.toLocaleString("en-US")} · ${game.env === null ? "" : `environment ${game.env} · `}game ${game.game + 1} · seed ${moment.seed}`;
  }

  redraw() {
    const moment = this.shown;
    if (!moment) return;
    const colors = this.colors();
    const ranges = this.ranges();
    moment.seats.forEach((seat, k) => {
      const game = moment.games[Math.min(k, moment.games.length - 1)];
      const marked = this.marked?.seat === k ? this.marked : null;
      this.seats[k].view.draw({ seat, names: this.agents[k].actions, taken: game.action, random: game.random, range: ranges[k], colors, marked,
        space: this.options.space, form: this.options.form, target: this.options.target, best: seat.would[0] });
    });
    this.drawCriteria(moment);
    this.trace.draw(this.moments, this.at, colors, moment.seats.length > 1 ? colors.seats : [colors.chosen]);
    this.slider.max = this.moments.length - 1;
    this.slider.value = this.at;
    const behind = this.moments.length - 1 - this.at;
    this.whereNode.textContent = behind ? `${behind.toLocaleString("en-US")} steps back` : `${this.moments.length.toLocaleString("en-US")} steps kept`;
    if (this.marked) this.read();
  }

  /** The axis covers what the last moments needed. */
  ranges() {
    const { space } = this.options;
    const from = Math.max(0, this.at - CALM);
    const together = space === "returns" && this.shown.games.length === 1; // the same returns for both; φ may differ
    return this.seats.map((_, k) => {
      let [low, high] = [Infinity, -Infinity];
      for (let j = from; j <= this.at; j += 1) {
        const { extent } = this.moments[j];
        for (const one of together ? extent : [extent[k]]) {
          low = Math.min(low, one[space][0]);
          high = Math.max(high, one[space][1]);
        }
      }
      if (low > high) [low, high] = [0, 1]; // nothing finite
      const room = (high - low || Math.abs(high) || 1) * 0.05;
      return [low - room, high + room];
    });
  }

  colors() {
    const names = ["ink", "soft", "line", "grid", "stem", "target", "good", "bad"];
    const family = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
    return { ...Object.fromEntries(names.map((name) => [name, color(name)])), chosen: color("stem-chosen"), chosenGround: color("chosen-ground"), seats: [color("seat-0"), color("seat-1")],
      font: `11px ${family}`, bold: `600 11px ${family}` };
  }

  /** What each criterion would choose: with its value for one agent, side by side for two. */
  drawCriteria(moment) {
    const alone = moment.seats.length === 1;
    const table = this.criteria;
    if (table.rows.length !== moment.criteria.length + 1) {
      const titles = alone ? [el("th", { scope: "col" }, "takes"), el("th.num", { scope: "col" }, "value")] : this.agents.map((agent) => el("th", { scope: "col" }, agent.recipe));
      const line = () => el("tr", {}, el("td"), el("td"), el(alone ? "td.num" : "td"));
      table.replaceChildren(el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "criterion"), ...titles)), el("tbody", {}, ...moment.criteria.map(line)));
    }
    moment.criteria.forEach((name, c) => {
      const { cells } = table.tBodies[0].rows[c];
      cells[0].textContent = c === moment.by ? `▸ ${name}` : `  ${name}`;
      moment.seats.forEach((seat, k) => {
        const action = seat.would[c];
        cells[1 + k].textContent = this.agents[k].actions[action] ?? action;
        cells[1 + k].title = `value ${number(seat.values[c][action], 4)}`;
        cells[1 + k].classList.toggle("differs", action !== seat.would[0]);
      });
      if (alone) cells[2].textContent = number(moment.seats[0].values[c][moment.seats[0].would[c]], 3);
    });
  }

  // ------------------------------------------------------------------- reading atoms

  mark(found, left, above) {
    const had = this.marked;
    this.marked = found;
    if (!found) {
      for (const seat of this.seats) seat.tip.style.display = "none";
      if (had) this.redraw();
      return;
    }
    this.redraw();
    const { tip, canvas } = this.seats[found.seat];
    tip.style.display = "block";
    const width = tip.offsetWidth;
    tip.style.left = `${left + width + 24 > canvas.clientWidth ? left - width - 12 : left + 14}px`;
    tip.style.top = `${Math.max(0, Math.min(above + 12, canvas.clientHeight - tip.offsetHeight - 2))}px`;
  }

  read() {
    const seat = this.shown.seats[this.marked.seat];
    const atom = describeAtom(seat, this.marked);
    const action = this.agents[this.marked.seat].actions[this.marked.action] ?? this.marked.action;
    const name = isLegal(seat, this.marked.action) ? action : `${action} (illegal)`;
    const lines = [["return", number(atom.value, 5)], ["φ(return)", number(atom.phi, 5)], ["probability", number(atom.p, 3)], ["P(at most this)", number(atom.below, 3)]];
    const { tip, reading } = this.seats[this.marked.seat];
    tip.replaceChildren(el("div.soft", {}, `${name}, atom ${this.marked.atom + 1} of ${seat.atoms}`),
      ...lines.map(([what, value]) => el("div.line", {}, el("span.label", {}, what), el("span.num", {}, value))));
    if (this.marked.keys) reading.textContent = `${name}, atom ${this.marked.atom + 1}: ${lines.map((line) => line.join(" ")).join(", ")}`;
  }

  moveMark(event, k) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !this.shown) return;
    event.preventDefault();
    event.stopPropagation();
    const seat = this.shown.seats[k];
    const now = this.marked?.seat === k ? this.marked : { action: 0, atom: Math.floor(seat.atoms / 2) };
    const clip = (value, most) => Math.min(most - 1, Math.max(0, value));
    const next = { seat: k, action: clip(now.action + step[0], seat.actions), atom: clip(now.atom + step[1], seat.atoms), keys: true };
    const { x, tall } = this.seats[k].view.geometry;
    this.mark(next, x(seat.laws[this.options.space][next.action * seat.atoms + next.atom]), tall * next.action + 4);
  }
}
