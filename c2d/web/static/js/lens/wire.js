// Messages of the lens: a JSON header, then arrays and images (c2d/web/lens/messages.py).

const headerDecoder = new TextDecoder();

/** ArrayBuffer -> {header, parts}; an array is {values: Float32Array, shape}, an image a Uint8Array. */
export function decodeMessage(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(headerDecoder.decode(new Uint8Array(buffer, 4, size)));
  const parts = {};
  for (const { name, at, bytes, shape } of header.parts) {
    const start = 4 + size + at;
    parts[name] = shape ? { values: new Float32Array(buffer, start, bytes / 4), shape } : new Uint8Array(buffer, start, bytes);
  }
  return { header, parts };
}

/** A moment as the stage draws it: the return distributions of each agent, the image of each game. */
export function readMoment({ header, parts }) {
  const seats = header.seats.map((seat, k) => {
    const [actions, atoms] = parts[`${k}.returns`].shape;
    const target = parts[`${k}.target_atoms`] ? { returns: parts[`${k}.target_returns`].values, atoms: parts[`${k}.target_atoms`].values, probs: parts[`${k}.target_probs`].values } : null;
    return { ...seat, actions, atoms, target,
      laws: { returns: parts[`${k}.returns`].values, atoms: parts[`${k}.atoms`].values, probs: parts[`${k}.probs`].values } };
  });
  const games = header.games.map((game, k) => ({ ...game, png: parts[`${k}.picture`] ?? null }));
  return { n: header.n, seed: header.seed, epsilon: header.epsilon, criteria: header.criteria, by: header.by, seats, games, extent: seats.map(extentOf) };
}

/** Smallest and largest atom that matters, in both spaces: not those of illegal actions. */
function extentOf(seat) {
  const found = { returns: [Infinity, -Infinity], atoms: [Infinity, -Infinity] };
  const { probs } = seat.laws;
  for (const space of ["returns", "atoms"]) {
    const values = seat.laws[space];
    const range = found[space];
    for (let i = 0; i < values.length; i += 1) {
      if (!(probs[i] >= 0.002) || !Number.isFinite(values[i]) || seat.legal?.[Math.floor(i / seat.atoms)] === false) continue;
      if (values[i] < range[0]) range[0] = values[i];
      if (values[i] > range[1]) range[1] = values[i];
    }
  }
  return found;
}
