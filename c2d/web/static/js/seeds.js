// Runs that differ in their seed alone, as one curve: the mean of the seeds, and a band from the lowest to the highest.

const MOST = 1_000; // points of a mean

/** Whole groups of runs: rows → [{key, rows}], in the order of the first run of each. Alone: every run by itself. */
export function grouped(rows, together) {
  const groups = new Map();
  for (const row of rows) {
    const key = together && row.group ? row.group : row.id;
    if (!groups.has(key)) groups.set(key, { key, rows: [] });
    groups.get(key).rows.push(row);
  }
  return [...groups.values()];
}

/** What distinguishes each group from the others on its environment: its recipe, and if that is not enough, its name. */
export function nameGroups(groups) {
  const same = (one, other) => one !== other && one.rows[0].env === other.rows[0].env && one.rows[0].recipe === other.rows[0].recipe;
  for (const group of groups) {
    const alike = groups.some((other) => same(group, other));
    group.name = group.rows.length === 1 ? group.rows[0].name : alike ? shared(group.rows.map((row) => row.name)) || group.rows[0].name : group.rows[0].recipe;
  }
}

/** The beginning that names have in common, without what is left of a seed. */
function shared(names) {
  let length = 0;
  while (length < names[0].length && names.every((name) => name[length] === names[0][length])) length += 1;
  return names[0].slice(0, length).replace(/[-_/ ]*(s|seed)?[-_/= ]*$/, "");
}

/**
 * members: [{x, y}] → {x, mean, low, high, left}: of the seeds that have come so far, each between its own points on a straight line and
 * after its last value level; from where all of them have values. left: how many reach the end.
 */
export function average(members) {
  const known = members.map(({ x, y }) => {
    const kept = x.map((at, k) => [at, y[k]]).filter(([at, value]) => (at ?? null) !== null && (value ?? null) !== null);
    return kept.sort((a, b) => a[0] - b[0]);
  });
  const begin = Math.max(...known.map((points) => points[0][0]));
  const ends = members.map(({ x }) => Math.max(...x.filter((at) => (at ?? null) !== null))); // the last points may have no value: no game ended
  const all = [...new Set(known.flatMap((points) => points.map(([at]) => at)))].filter((at) => at >= begin).sort((a, b) => a - b);
  const stride = Math.ceil(all.length / MOST) || 1;
  const x = all.filter((_, k) => k % stride === 0 || k === all.length - 1);
  const values = known.map((points) => along(points, x));
  const columns = x.map((at, k) => values.filter((_, seed) => at <= ends[seed]).map((one) => one[k]));
  return {
    x, mean: columns.map((column) => column.reduce((sum, value) => sum + value, 0) / column.length),
    low: columns.map((column) => Math.min(...column)), high: columns.map((column) => Math.max(...column)), left: columns.at(-1)?.length ?? 0,
  };
}

/** Values of a curve at places from its first point on, in order; after its last point that one's. */
function along(points, places) {
  let next = 0;
  return places.map((at) => {
    while (next < points.length - 1 && points[next][0] < at) next += 1;
    const [x, y] = points[next];
    if (next === 0 || x <= at) return y;
    const [before, value] = points[next - 1];
    return value + ((y - value) * (at - before)) / (x - before);
  });
}
