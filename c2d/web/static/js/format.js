// Numbers and times as people read them.

const DASH = "–";

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 1e7) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (Number.isInteger(value)) return String(value);
  if (size < 1e-4) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

/** Two decimals for scores: columns of them line up. */
export function score(value) {
  if (value === null || value === undefined) return DASH;
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : value.toFixed(2);
}

export function count(value) {
  if (value === null || value === undefined) return DASH;
  if (value >= 1e6) return `${trim(value / 1e6)}M`;
  if (value >= 1e4) return `${trim(value / 1e3)}k`;
  return Math.round(value).toLocaleString("en-US");
}

const trim = (value) => (value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function when(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : DASH;
}

export const environments = (many) => `${many.toLocaleString("en-US")} environments`;

/** A value of a config or passport. */
export function setting(value) {
  if (value === null || value === undefined) return DASH;
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}
