// The value of the action taken over the last minutes, with rewards and ends of games; a place to scrub.

import { number } from "../format.js";
import { prepared, ticks } from "./laws.js";

const LEFT = 56;
const RIGHT = 10;
const BELOW = 8;

export class TraceView {
  constructor(canvas, scrubTo) {
    this.canvas = canvas;
    const drag = (event) => {
      if (event.buttons !== 1 && event.type !== "pointerdown") return;
      const share = (event.offsetX - LEFT) / (canvas.clientWidth - LEFT - RIGHT);
      scrubTo(Math.min(1, Math.max(0, share)));
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); drag(event); });
    canvas.addEventListener("pointermove", drag);
  }

  /** moments: those kept, in order; at: which one is shown; lines: color of each seat */
  draw(moments, at, colors, lines) {
    const { ctx, width, height } = prepared(this.canvas);
    if (!moments.length) return;
    const inner = width - LEFT - RIGHT;
    const count = Math.max(2, moments.length);
    const x = (k) => LEFT + (inner * k) / (count - 1);
    const stride = Math.max(1, Math.floor(moments.length / (inner * 1.5)));
    const kept = [];
    for (let k = 0; k < moments.length; k += stride) kept.push(k);
    let low = Infinity;
    let high = -Infinity;
    for (const k of kept) {
      for (const [seat, one] of moments[k].seats.entries()) {
        const value = valueOf(moments[k], seat, one);
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    const room = (high - low || Math.abs(high) || 1) * 0.1;
    [low, high] = [low - room, high + room];
    const y = (value) => BELOW + (height - 2 * BELOW) * (1 - (value - low) / (high - low));
    this.drawAxis(ctx, colors, low, high, width, y);
    this.drawEvents(ctx, moments, kept, stride, x, height, colors);
    for (const [seat, ink] of lines.entries()) this.drawLine(ctx, moments, kept, seat, ink, x, y);
    ctx.strokeStyle = colors.ink;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(x(at), 0);
    ctx.lineTo(x(at), height);
    ctx.stroke();
  }

  drawAxis(ctx, colors, low, high, width, y) {
    ctx.font = colors.font;
    ctx.fillStyle = colors.soft;
    ctx.strokeStyle = colors.grid;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.lineWidth = 1;
    for (const value of ticks(low, high, 6)) {
      const at = Math.round(y(value)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(LEFT, at);
      ctx.lineTo(width - RIGHT, at);
      ctx.stroke();
      ctx.fillText(number(value), LEFT - 6, at);
    }
  }

  /** Rewards as ticks at the lower edge, ends of games as lines. */
  drawEvents(ctx, moments, kept, stride, x, height, colors) {
    for (const k of kept) {
      let reward = 0;
      let ended = false;
      for (let j = k; j < Math.min(moments.length, k + stride); j += 1) {
        for (const game of moments[j].games) {
          reward += game.reward;
          ended ||= game.ended !== null;
        }
      }
      if (ended) {
        ctx.fillStyle = colors.line;
        ctx.fillRect(x(k) - 0.5, 0, 1.5, height);
      }
      if (reward) {
        ctx.fillStyle = reward > 0 ? colors.good : colors.bad;
        ctx.fillRect(x(k) - 0.75, height - 7, 1.5, 7);
      }
    }
  }

  drawLine(ctx, moments, kept, seat, ink, x, y) {
    ctx.strokeStyle = ink;
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    let pen = false;
    for (const k of kept) {
      const one = moments[k].seats[seat];
      if (!one) continue;
      const value = valueOf(moments[k], seat, one);
      if (pen) ctx.lineTo(x(k), y(value));
      else ctx.moveTo(x(k), y(value));
      pen = moments[k].games[Math.min(seat, moments[k].games.length - 1)].ended === null;
    }
    ctx.stroke();
  }
}

/** The expected return of the action taken, as this agent sees it. */
export function valueOf(moment, seat, one = moment.seats[seat]) {
  return one.mean[moment.games[Math.min(seat, moment.games.length - 1)].action];
}
