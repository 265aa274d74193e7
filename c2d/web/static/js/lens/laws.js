// The return distributions (laws) of all actions as stems: probability over return, one row per action, one axis below.

import { number } from "../format.js";

const LABEL = 128; // CSS pixels for names and means at the left
const AXIS = 34;
const RIGHT = 38; // for the scale of probabilities
const FAINT = 0.25; // opacity of what is predicted for illegal actions: nothing corrects it

/** Whether the environment allows an action now; without masks it allows all. */
export function isLegal(seat, action) {
  return seat.legal?.[action] ?? true;
}

/** Prepare a canvas for drawing in CSS pixels; returns its context and size. */
export function prepared(canvas) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return { ctx, width, height };
}

/** Round numbers that divide a range. */
export function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw) ?? raw;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

export class LawsView {
  constructor(canvas) {
    this.canvas = canvas;
    this.geometry = null;
    this.top = 0; // probability at full height, falls slowly so that the image stays steady
  }

  /** what: {seat, names, taken, random, range: [low, high], space, form: "stems" | "cdf", target, colors, marked} */
  draw(what) {
    const { ctx, width, height } = prepared(this.canvas);
    const { seat, range } = what;
    const rows = seat.actions;
    const tall = (height - AXIS) / rows;
    const [low, high] = range;
    const inner = width - LABEL - RIGHT;
    const x = (value) => LABEL + (inner * (value - low)) / (high - low);
    this.geometry = { rows, tall, x, what, low, high };
    this.scale(seat, what.target);
    ctx.fillStyle = what.colors.chosenGround;
    ctx.fillRect(0, Math.round(tall * what.taken), width, Math.round(tall) - 1);
    this.drawAxis(ctx, what, width, height, x);
    for (let action = 0; action < rows; action += 1) this.drawRow(ctx, what, action, tall, width);
    this.nameScale(ctx, what, height);
    this.nameTarget(ctx, what, height);
    if (what.marked) this.drawMark(ctx, what);
  }

  scale(seat, withTarget) {
    let largest = 0.02;
    seat.laws.probs.forEach((p, i) => { if (p > largest && isLegal(seat, Math.floor(i / seat.atoms))) largest = p; });
    if (withTarget && seat.target) for (const p of seat.target.probs) if (p > largest) largest = p;
    largest = Math.min(1, largest);
    this.top = largest > this.top ? largest : Math.max(largest, this.top * 0.92);
  }

  drawAxis(ctx, { range: [low, high], colors, space }, width, height, x) {
    const y = height - AXIS;
    ctx.strokeStyle = colors.grid;
    ctx.fillStyle = colors.soft;
    ctx.font = colors.font;
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    ctx.lineWidth = 1;
    for (const value of ticks(low, high, Math.max(2, (width - LABEL) / 90))) {
      const at = Math.round(x(value)) + 0.5;
      ctx.strokeStyle = value === 0 ? colors.line : colors.grid;
      ctx.beginPath();
      ctx.moveTo(at, 0);
      ctx.lineTo(at, y);
      ctx.stroke();
      ctx.fillText(number(value), at, y + 5);
    }
    ctx.textAlign = "left";
    ctx.fillText(space === "returns" ? "return →" : "φ(return) →", 8, y + 5);
  }

  drawRow(ctx, what, action, tall, width) {
    const { seat, names, taken, random, colors, space, form } = what;
    const chosen = action === taken;
    const both = what.target && seat.target;
    const up = (tall - 14) * (both ? 0.62 : 0.92);
    const base = Math.round(tall * action + 8 + up) + 0.5;
    const { x } = this.geometry;
    ctx.strokeStyle = colors.line;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(LABEL, base);
    ctx.lineTo(width - RIGHT + 6, base);
    ctx.stroke();
    this.drawScale(ctx, what, base, up, both && chosen && form === "stems" ? tall - 14 - up : 0, width);
    const first = action * seat.atoms;
    const law = { values: seat.laws[space].subarray(first, first + seat.atoms), probs: seat.laws.probs.subarray(first, first + seat.atoms) };
    const ink = chosen ? colors.chosen : colors.stem;
    const legal = isLegal(seat, action);
    ctx.globalAlpha = legal ? 1 : FAINT;
    if (form === "cdf") this.drawSteps(ctx, law, base, up, ink);
    else this.drawStems(ctx, law, base, -up, ink);
    ctx.globalAlpha = 1;
    if (both && chosen) this.drawTarget(ctx, what, base, up, tall - 14 - up);
    if (legal) this.drawMean(ctx, x((space === "returns" ? seat.mean : seat.mean_atoms)[action] ?? NaN), base, ink);
    if (!Number.isFinite(seat.mean[action])) this.sayNotFinite(ctx, colors, base, law);
    this.drawLabel(ctx, what, action, chosen, random, tall, names[action] ?? String(action));
  }

  /** The reference probability of all rows: a round number close to that of the tallest stem. */
  unit(form) {
    if (form === "cdf") return 1;
    const power = 10 ** Math.floor(Math.log10(this.top));
    return Number([8, 6, 5, 4, 3, 2, 1].map((k) => k * power).find((p) => p <= this.top * 1.001).toPrecision(3));
  }

  /** A line at the height of that probability; a second one, on its own scale, below where a target hangs. */
  drawScale(ctx, { form, colors }, base, up, down, width) {
    const p = this.unit(form);
    const share = form === "cdf" ? 1 : p / this.top;
    ctx.font = colors.font;
    ctx.fillStyle = colors.soft;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.strokeStyle = colors.line;
    ctx.lineWidth = 1;
    ctx.setLineDash([1, 3]);
    for (const reach of [-up, down].filter(Boolean)) {
      const y = Math.round(base + reach * share) + 0.5;
      ctx.beginPath();
      ctx.moveTo(LABEL, y);
      ctx.lineTo(width - RIGHT + 4, y);
      ctx.stroke();
      if (Math.abs(reach) >= 12) ctx.fillText(number(p, 2), width - RIGHT + 7, y);
    }
    ctx.setLineDash([]);
  }

  nameScale(ctx, { form, colors }, height) {
    ctx.font = colors.font;
    ctx.fillStyle = colors.soft;
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    const words = form === "cdf" ? "dotted: probability 1" : `dotted: probability ${number(this.unit(form), 2)}`;
    ctx.fillText(words, this.canvas.clientWidth - 6, height - AXIS + 18);
  }

  /** How far the prediction is from the target, below the axis: over the stems it could not be read. */
  nameTarget(ctx, { seat, colors, target }, height) {
    if (!target || !seat.target) return;
    const distance = (seat.distance ?? null) === null ? "" : ` · ℓ₂² ${number(seat.distance, 3)}`;
    ctx.fillStyle = colors.target;
    ctx.textAlign = "left";
    ctx.fillText(`Bellman target${distance}`, 8, height - AXIS + 18);
  }

  /** For an agent that has diverged. */
  sayNotFinite(ctx, colors, base, law) {
    ctx.font = colors.font;
    ctx.fillStyle = colors.bad;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    const all = law.probs.every((p, i) => !Number.isFinite(p) || !Number.isFinite(law.values[i]));
    ctx.fillText(all ? "no finite numbers in this distribution" : "the mean of this distribution is not finite", LABEL + 8, base - 4);
  }

  drawStems(ctx, { values, probs }, base, tallest, ink) {
    const { x } = this.geometry;
    const wide = values.length > 120 ? 1 : values.length > 60 ? 1.5 : 2;
    ctx.strokeStyle = ink;
    ctx.lineWidth = wide;
    ctx.beginPath();
    for (let i = 0; i < values.length; i += 1) {
      const at = x(values[i]);
      if (at < LABEL - 2) continue;
      ctx.moveTo(at, base);
      ctx.lineTo(at, base + (tallest * probs[i]) / this.top);
    }
    ctx.stroke();
    if (values.length > 80) return;
    ctx.fillStyle = ink;
    ctx.beginPath();
    for (let i = 0; i < values.length; i += 1) {
      const at = x(values[i]);
      const tip = (tallest * probs[i]) / this.top;
      if (at < LABEL - 2 || Math.abs(tip) < 1.5) continue;
      ctx.moveTo(at + 2.2, base + tip);
      ctx.arc(at, base + tip, 2.2, 0, 2 * Math.PI);
    }
    ctx.fill();
  }

  /** The distribution function. */
  drawSteps(ctx, { values, probs }, base, up, ink) {
    const { x } = this.geometry;
    ctx.strokeStyle = ink;
    ctx.lineWidth = 1.6;
    ctx.beginPath();
    const right = this.canvas.clientWidth - RIGHT + 4;
    let sum = 0;
    ctx.moveTo(LABEL, base);
    for (let i = 0; i < values.length; i += 1) {
      const at = Math.min(right, Math.max(LABEL, x(values[i])));
      ctx.lineTo(at, base - up * sum);
      sum += probs[i];
      ctx.lineTo(at, base - up * sum);
    }
    ctx.lineTo(right, base - up * sum);
    ctx.stroke();
  }

  /** The Bellman target hangs below the line of the executed action. */
  drawTarget(ctx, { seat, space, colors, form }, base, up, down) {
    const law = { values: seat.target[space], probs: seat.target.probs };
    if (form === "cdf") this.drawSteps(ctx, law, base, up, colors.target);
    else this.drawStems(ctx, law, base, down, colors.target);
  }

  drawMean(ctx, at, base, ink) {
    if (!(at >= LABEL - 4)) return;
    ctx.fillStyle = ink;
    ctx.beginPath();
    ctx.moveTo(at, base + 1);
    ctx.lineTo(at - 4.5, base + 8);
    ctx.lineTo(at + 4.5, base + 8);
    ctx.fill();
  }

  drawLabel(ctx, { seat, colors, best }, action, chosen, random, tall, name) {
    const middle = tall * action + tall / 2;
    const two = tall >= 34;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.font = chosen ? colors.bold : colors.font;
    const legal = isLegal(seat, action);
    ctx.fillStyle = chosen ? colors.chosen : legal ? colors.ink : colors.soft;
    const sign = chosen ? (random ? "↯ " : "▸ ") : "  ";
    ctx.fillText(`${sign}${name}`, 6, middle - (two ? 7 : 0), LABEL - (two ? 12 : 58));
    ctx.font = action === best ? colors.bold : colors.font;
    ctx.fillStyle = colors.soft;
    ctx.textAlign = two ? "left" : "right";
    ctx.fillText(legal ? number(seat.mean[action], 4) : "illegal", two ? 20 : LABEL - 8, middle + (two ? 8 : 0));
  }

  drawMark(ctx, { marked, seat, space, colors }) {
    const { x, tall } = this.geometry;
    const at = x(seat.laws[space][marked.action * seat.atoms + marked.atom]);
    ctx.strokeStyle = colors.ink;
    ctx.lineWidth = 1;
    ctx.setLineDash([3, 3]);
    ctx.beginPath();
    ctx.moveTo(at, tall * marked.action + 2);
    ctx.lineTo(at, tall * (marked.action + 1) - 4);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /** The atom nearest to a place on the canvas; null where there is none. */
  find(left, above) {
    if (!this.geometry) return null;
    const { rows, tall, x, what } = this.geometry;
    const action = Math.floor(above / tall);
    if (action < 0 || action >= rows || left < LABEL - 10) return null;
    const values = what.seat.laws[what.space];
    let best = null;
    let nearest = 24;
    for (let atom = 0; atom < what.seat.atoms; atom += 1) {
      const away = Math.abs(x(values[action * what.seat.atoms + atom]) - left);
      if (away < nearest) [nearest, best] = [away, atom];
    }
    return best === null ? null : { action, atom: best };
  }
}

/** The values of one atom. */
export function describeAtom(seat, { action, atom }) {
  const at = action * seat.atoms + atom;
  let below = 0;
  for (let k = action * seat.atoms; k <= at; k += 1) below += seat.laws.probs[k];
  return { value: seat.laws.returns[at], phi: seat.laws.atoms[at], p: seat.laws.probs[at], below: Math.min(1, below) };
}
