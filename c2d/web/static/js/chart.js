// Line charts on uPlot: several curves with points of their own, a reading at the cursor, light and dark, export.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { color, el, svg } from "./dom.js";
import { number } from "./format.js";

const LIGHT = ["#0b5cad", "#c2410c", "#1a7f4b", "#7a3e9d", "#b3186b", "#00788a", "#8a6100", "#5b6b00", "#a8201f", "#4a56c9"];
const DARK = ["#6cb2f5", "#ff9254", "#5fcf8f", "#c79be6", "#ff85bb", "#4fd0dd", "#e6b84f", "#bfd04f", "#ff8a80", "#a3acff"];
const SAMPLE = 26; // pixels of a line in a legend
const NAMES = 64; // pixels for names at the right
const DASHES = [null, [7, 4], [2, 3], [9, 3, 2, 3]];

/** Color and dash of the k-th curve. */
export function style(k) {
  const palette = document.documentElement.dataset.theme === "dark" ? DARK : LIGHT;
  return { color: palette[k % palette.length], dash: DASHES[Math.floor(k / palette.length) % DASHES.length] };
}

export class Chart {
  /** options: label (for screen readers), xLabel, yLabel, xFormat, yFormat, and small: true for a chart among many */
  constructor(node, options) {
    this.node = node;
    this.options = { xFormat: number, yFormat: number, xLabel: "", ...options };
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", options.label);
    this.tip = el("div.tip");
    this.series = [];
    this.scale = { logX: false, logY: false };
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(node);
    addEventListener("themechange", () => this.rebuild());
  }

  size() {
    return { width: Math.max(120, this.node.clientWidth), height: Math.max(80, this.node.clientHeight) };
  }

  /**
   * series: {label, color, dash, x, y, raw (y before smoothing), points, width, endLabel, at (x => what the point at x is), band (filled
   * down to the series before), quiet (only drawn: neither read at the cursor nor named)}; scale: {logX, logY}
   */
  set(series, scale = this.scale) {
    const form = (s) => [s.label, s.color, s.dash, s.points, s.width, s.endLabel, s.band, s.quiet].join();
    const before = this.series.map(form).join("|") + JSON.stringify(this.scale);
    this.series = series;
    this.scale = scale;
    if (this.plot && before === series.map(form).join("|") + JSON.stringify(scale)) this.plot.setData(this.data());
    else this.rebuild();
  }

  data() {
    const { logX, logY } = this.scale;
    const tables = this.series.map((s) => {
      const keep = s.x.map((x, i) => x !== null && x !== undefined && (!logX || x > 0) && i < s.y.length);
      const y = s.y.map((v) => (v === null || v === undefined || (logY && v <= 0) ? null : v));
      return [s.x.filter((_, i) => keep[i]), y.filter((_, i) => keep[i])];
    });
    return tables.length ? uPlot.join(tables, tables.map(() => [1, 1])) : [[], []];
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.series.length) {
      this.node.replaceChildren(el("div.empty", {}, this.options.empty ?? "nothing recorded yet"));
      return;
    }
    this.node.replaceChildren(this.tip);
    this.plot = new uPlot(this.layout(), this.data(), this.node);
    this.node.append(this.tip);
  }

  layout() {
    const { xFormat, yFormat, xLabel, yLabel, small } = this.options;
    const axis = { stroke: color("soft"), font: "11px system-ui, sans-serif", grid: { stroke: color("grid"), width: 1 },
      ticks: { stroke: color("grid"), width: 1, size: 4 }, gap: 3 };
    const series = this.series.map((s) => ({
      label: s.label, stroke: s.color, dash: s.dash ?? undefined, width: s.width ?? 1.6, spanGaps: true,
      paths: s.scatter ? () => null : undefined,
      points: { show: s.points || s.scatter || undefined, size: s.scatter ? 2.5 : 5, fill: s.color },
    }));
    const split = (format) => (_, values, axisNumber, space, step) => values.map((v) => (v === null ? "" : format(v, digits(values, step))));
    return {
      ...this.size(), padding: [8, this.series.some((s) => s.endLabel) ? NAMES : 16, 0, 0], series: [{}, ...series],
      legend: { show: false }, cursor: { points: { size: 6 }, y: false },
      scales: { x: { time: false, distr: this.scale.logX ? 3 : 1 }, y: { distr: this.scale.logY ? 3 : 1, range: this.scale.logY ? undefined : flat } },
      axes: [
        { ...axis, values: split(xFormat), size: small ? 22 : 24, label: small ? undefined : xLabel, labelSize: 14, labelGap: 0, labelFont: "11px system-ui, sans-serif", space: 60 },
        { ...axis, values: split(yFormat), size: 52, space: small ? 26 : 34, label: small ? undefined : yLabel, labelSize: 16, labelGap: 0, labelFont: "11px system-ui, sans-serif" },
      ],
      hooks: { setCursor: [(u) => this.read(u)], drawAxes: [(u) => this.fillBands(u)], draw: [(u) => this.nameEnds(u)] },
    };
  }

  /** The values under the cursor; for a curve without a point there, its previous one. */
  read(u) {
    const { idx, left, top } = u.cursor;
    if (idx === null || idx === undefined || left < 0) {
      this.tip.style.display = "none";
      return;
    }
    const lines = [];
    this.series.forEach((s, k) => {
      if (s.quiet) return;
      let at = idx;
      while (at >= 0 && (u.data[k + 1][at] === null || u.data[k + 1][at] === undefined)) at -= 1;
      if (at >= 0) lines.push([u.data[k + 1][at], s, s.at?.(u.data[0][at]) ?? s.label]);
    });
    lines.sort((a, b) => b[0] - a[0]);
    const rows = lines.slice(0, 14).map(([value, s, label]) => {
      const swatch = el("span.swatch");
      swatch.style.background = s.color;
      return el("div.line", {}, swatch, el("span.label", {}, label), el("span.num", {}, this.options.yFormat(value)));
    });
    this.tip.replaceChildren(el("div.soft", {}, `${this.options.xFormat(u.data[0][idx])} ${this.options.xLabel}`), ...rows);
    this.tip.style.display = "block";
    const over = u.over.getBoundingClientRect();
    const frame = this.node.getBoundingClientRect();
    const place = over.left - frame.left + left;
    const width = this.tip.offsetWidth;
    this.tip.style.left = `${place + width + 20 > frame.width ? Math.max(0, place - width - 12) : place + 12}px`;
    this.tip.style.top = `${Math.max(0, Math.min(over.top - frame.top + top - 10, frame.height - this.tip.offsetHeight - 4))}px`;
  }

  /** The area between a curve and the one before it. uPlot's own bands break where curves have points of their own. */
  fillBands(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    this.series.forEach((s, k) => {
      if (!s.band) return;
      const edge = (values) => u.data[0].flatMap((x, i) => ((values[i] ?? null) === null ? [] : [[u.valToPos(x, "x", true), u.valToPos(values[i], "y", true)]]));
      ctx.fillStyle = `${s.color.slice(0, 7)}2b`;
      ctx.beginPath();
      for (const [x, y] of [...edge(u.data[k + 1]), ...edge(u.data[k]).reverse()]) ctx.lineTo(x, y);
      ctx.fill();
    });
    ctx.restore();
  }

  /** Names at the end of curves that are not in the table. */
  nameEnds(u) {
    const { ctx } = u;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    const names = [];
    this.series.forEach((s, k) => {
      if (!s.endLabel) return;
      let at = u.data[0].length - 1;
      while (at >= 0 && (u.data[k + 1][at] ?? null) === null) at -= 1;
      if (at < 0) return;
      const x = u.valToPos(u.data[0][at], "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width + 2) return;
      names.push({ text: s.endLabel, color: s.color, x, y: u.valToPos(u.data[k + 1][at], "y", true) });
    });
    spread(names, u.bbox.top + 6 * ratio, u.bbox.top + u.bbox.height - 6 * ratio, 12 * ratio);
    for (const { text, color: ink, x, y } of names) {
      ctx.fillStyle = ink;
      ctx.textAlign = "left";
      ctx.fillText(text, x + 6 * ratio, y);
    }
    ctx.restore();
  }

  /** The chart with title and legend as a canvas. */
  picture(title) {
    const source = this.plot.ctx.canvas;
    const ratio = devicePixelRatio || 1;
    const line = 18 * ratio;
    const named = this.series.filter((s) => !s.quiet);
    const canvas = el("canvas", { width: source.width, height: source.height + line * (2 + Math.ceil(named.length / 3)) });
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = color("panel");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    ctx.fillStyle = color("ink");
    ctx.fillText(title, 12 * ratio, 16 * ratio);
    ctx.drawImage(source, 0, line * 1.4);
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    named.forEach((s, k) => {
      const x = 12 * ratio + ((k % 3) * (canvas.width - 24 * ratio)) / 3;
      const y = source.height + line * (2 + Math.floor(k / 3));
      ctx.strokeStyle = s.color;
      ctx.lineWidth = 2 * ratio;
      ctx.setLineDash((s.dash ?? []).map((length) => length * ratio));
      ctx.beginPath();
      ctx.moveTo(x, y - 4 * ratio);
      ctx.lineTo(x + SAMPLE * ratio, y - 4 * ratio);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = color("ink");
      ctx.fillText(s.label, x + (SAMPLE + 6) * ratio, y);
    });
    return canvas;
  }

}

/** Charts as one table: one line per point, as recorded and, if smoothed, as smoothed. Several charts by their names. */
export function csv(charts) {
  const quote = (text) => `"${String(text).replaceAll('"', '""').replace(/^([=+\-@])/, "'$1")}"`;
  const { smoothing, xLabel } = charts[0].options;
  const smoothed = smoothing ? [`smoothed (running mean, weight ${smoothing})`] : [];
  const place = charts.length > 1 ? ["environment"] : [];
  const lines = [[...place, "curve", xLabel || "x", "value", ...smoothed].map(quote).join(",")];
  for (const chart of charts) {
    for (const s of chart.series) {
      const raw = s.raw ?? s.y;
      const name = [...place.map(() => chart.options.name), s.label].map(quote);
      s.x.forEach((x, i) => { if ((raw[i] ?? null) !== null) lines.push([...name, x, raw[i], ...(smoothed.length ? [s.y[i]] : [])].join(",")); });
    }
  }
  return `${lines.join("\n")}\n`;
}

/** Canvases below one another as a PNG blob. */
export function stacked(canvases) {
  const whole = el("canvas", { width: Math.max(...canvases.map((one) => one.width)), height: canvases.reduce((sum, one) => sum + one.height, 0) });
  const ctx = whole.getContext("2d");
  ctx.fillStyle = color("panel");
  ctx.fillRect(0, 0, whole.width, whole.height);
  let top = 0;
  for (const one of canvases) {
    ctx.drawImage(one, 0, top);
    top += one.height;
  }
  return new Promise((resolve) => whole.toBlob(resolve, "image/png"));
}

/** A short piece of a curve, as a legend shows it. */
export function sample({ color: ink, dash, width }) {
  const picture = svg("svg", { class: "sample", viewBox: `0 0 ${SAMPLE} 8`, width: SAMPLE, height: 8, "aria-hidden": "true" });
  picture.append(svg("line", { x1: 0, x2: SAMPLE, y1: 4, y2: 4, stroke: ink, "stroke-width": width ?? 2, "stroke-dasharray": (dash ?? []).join(" ") }));
  return picture;
}

/** Move names apart until none overlaps: each as little as possible, in the order of their curves, inside the chart. */
function spread(names, top, bottom, gap) {
  names.sort((a, b) => a.y - b.y);
  for (let round = 0; round < 60; round += 1) {
    names.slice(1).forEach((below, k) => {
      const short = gap - (below.y - names[k].y);
      if (short <= 0) return;
      names[k].y -= short / 2;
      below.y += short / 2;
    });
    names.forEach((name, k) => { name.y = Math.min(Math.max(name.y, top + k * gap), bottom - (names.length - 1 - k) * gap); });
  }
}

/** Significant digits that distinguish neighboring ticks. */
function digits(values, step) {
  const largest = Math.max(...values.filter((v) => v !== null).map(Math.abs));
  return step > 0 && largest > 0 ? Math.min(12, Math.max(4, Math.ceil(Math.log10(largest / step)) + 1)) : 4;
}

/** A range that gives a flat curve some room. */
function flat(u, low, high) {
  if (low === null || high === null) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

/** An exponential running mean, corrected for its start. */
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}
