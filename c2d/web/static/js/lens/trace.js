// The value of the executed action over the last minutes, with rewards and ends of games; drag to look back.

import { number } from "../format.js";
import { prepared, ticks } from "./laws.js";

const LEFT = 56;
const ABOVE = 6;
const BELOW = 18; // for the axis of time
const TICK = 6; // height of the mark of a reward

export class TraceView {
  constructor(canvas, scrubTo) {
    this.canvas = canvas;
    this.right = 10; // or more, for a second axis
    const drag = (event) => {
      if (event.buttons !== 1 && event.type !== "pointerdown") return;
      const share = (event.offsetX - LEFT) / (canvas.clientWidth - LEFT - this.right);
      scrubTo(Math.min(1, Math.max(0, share)));
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); drag(event); });
    canvas.addEventListener("pointermove", drag);
  }

  /** moments: those kept, in order; at: which one is shown; lines: color of each seat */
  draw(moments, at, colors, lines) {
    const { ctx, width, height } = prepared(this.canvas);
    if (!moments.length) return;
    const apart = moments[0].games.length > 1; // each agent in a game of its own: two axes
    this.right = apart ? LEFT : 10;
    const inner = width - LEFT - this.right;
    const floor = height - BELOW;
    const count = Math.max(2, moments.length);
    const x = (k) => LEFT + (inner * k) / (count - 1);
    const stride = Math.max(1, Math.floor(moments.length / (inner * 1.5)));
    const kept = [];
    for (let k = 0; k < moments.length; k += stride) kept.push(k);
    const scales = lines.map((_, seat) => scaleOf(moments, kept, apart ? [seat] : [...lines.keys()], floor));
    this.drawTime(ctx, colors, moments.length, x, floor);
    scales.slice(0, apart ? 2 : 1).forEach((scale, seat) => this.drawAxis(ctx, colors, apart ? lines[seat] : colors.soft, scale, width, seat === 1));
    this.drawEvents(ctx, moments, kept, stride, x, floor, colors, lines);
    for (const [seat, ink] of lines.entries()) this.drawLine(ctx, moments, kept, seat, ink, x, scales[seat].y);
    ctx.strokeStyle = colors.ink;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(x(at), 0);
    ctx.lineTo(x(at), floor);
    ctx.stroke();
  }

  drawAxis(ctx, colors, ink, { low, high, y }, width, second) {
    ctx.font = colors.font;
    ctx.fillStyle = ink;
    ctx.strokeStyle = colors.grid;
    ctx.textAlign = second ? "left" : "right";
    ctx.textBaseline = "middle";
    ctx.lineWidth = 1;
    for (const value of ticks(low, high, 6)) {
      const at = Math.round(y(value)) + 0.5;
      if (!second) {
        ctx.beginPath();
        ctx.moveTo(LEFT, at);
        ctx.lineTo(width - this.right, at);
        ctx.stroke();
      }
      ctx.fillText(number(value), second ? width - this.right + 6 : LEFT - 6, at);
    }
  }

  /** Steps back from the newest moment. */
  drawTime(ctx, colors, count, x, floor) {
    ctx.font = colors.font;
    ctx.fillStyle = colors.soft;
    ctx.strokeStyle = colors.line;
    ctx.textBaseline = "top";
    ctx.lineWidth = 1;
    for (const back of ticks(0, count - 1, 8).filter(Number.isInteger)) {
      const at = Math.round(x(count - 1 - back)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(at, floor);
      ctx.lineTo(at, floor + 3);
      ctx.stroke();
      ctx.textAlign = back ? "center" : "right";
      const word = back ? `−${number(back)}` : "newest";
      if (back && at + ctx.measureText(word).width / 2 + 6 > x(count - 1) - ctx.measureText("newest").width) continue;
      ctx.fillText(word, at, floor + 5);
    }
  }

  /** Rewards as ticks at the lower edge, the second game's above the first one's; ends of games as lines. */
  drawEvents(ctx, moments, kept, stride, x, floor, colors, lines) {
    const games = moments[0].games.length;
    for (const k of kept) {
      for (let g = 0; g < games; g += 1) {
        let reward = 0;
        let ended = false;
        for (let j = k; j < Math.min(moments.length, k + stride); j += 1) {
          reward += moments[j].games[g].reward;
          ended ||= moments[j].games[g].ended !== null;
        }
        if (ended) {
          ctx.globalAlpha = games > 1 ? 0.4 : 1;
          ctx.fillStyle = games > 1 ? lines[g] : colors.line;
          ctx.fillRect(x(k) - 0.5, 0, 1.5, floor);
          ctx.globalAlpha = 1;
        }
        if (reward) {
          ctx.fillStyle = reward > 0 ? colors.good : colors.bad;
          ctx.fillRect(x(k) - 0.75, floor - TICK - g * (TICK + 2), 1.5, TICK);
        }
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
      const value = one ? valueOf(moments[k], seat, one) : null;
      if (value === null) {
        pen = false;
        continue;
      }
      if (pen) ctx.lineTo(x(k), y(value));
      else ctx.moveTo(x(k), y(value));
      pen = moments[k].games[Math.min(seat, moments[k].games.length - 1)].ended === null;
    }
    ctx.stroke();
  }
}

/** The axis for the values of some seats, and the position of a value. */
function scaleOf(moments, kept, seats, floor) {
  let [low, high] = [Infinity, -Infinity];
  for (const k of kept) {
    for (const seat of seats) {
      const value = valueOf(moments[k], seat);
      if (value === null) continue; // not finite
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) [low, high] = [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.1;
  [low, high] = [low - room, high + room];
  return { low, high, y: (value) => ABOVE + (floor - ABOVE) * (1 - (value - low) / (high - low)) };
}

/** The expected return of the executed action, as this agent sees it; null if it is not finite. */
export function valueOf(moment, seat, one = moment.seats[seat]) {
  return one.mean[moment.games[Math.min(seat, moment.games.length - 1)].action] ?? null;
}
