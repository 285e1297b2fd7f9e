/** Reads the text format of Prometheus: samples, and quantiles over the time between two scrapes. */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/**
 * @param {string} text The text format of Prometheus.
 * @returns {Map<string, {labels: Record<string, string>, value: number}[]>} samples by name
 */
export function samples(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries(
      [...(match[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]),
    );
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({ labels, value: Number(match[3].replace("Inf", "Infinity")) });
  }
  return found;
}

/** @returns {number} the value of the sample with these labels; 0 if there is none */
export function value(scrape, name, labels = {}) {
  const wanted = Object.entries(labels);
  const sample = (scrape.get(name) ?? []).find((each) =>
    wanted.every(([label, text]) => each.labels[label] === text),
  );
  return sample?.value ?? 0;
}

/** @returns {string[]} the values that a label takes */
export function values(scrape, name, label) {
  return [...new Set((scrape.get(name) ?? []).map(({ labels }) => labels[label]))];
}

/**
 * Cumulative buckets of a histogram between two scrapes, by their upper bound.
 * @returns {{bound: number, count: number}[]}
 */
export function seen(before, after, name, labels) {
  const old = before ? buckets(before, name, labels) : new Map();
  return [...buckets(after, name, labels)].map(([bound, count]) => ({
    bound,
    count: count - (old.get(bound) ?? 0),
  }));
}

/**
 * A quantile, interpolated within its bucket; null if there are no observations.
 * @param {{bound: number, count: number}[]} cumulative
 * @param {number} q
 */
export function quantile(cumulative, q) {
  const total = cumulative.at(-1)?.count ?? 0;
  if (!total) return null;
  const rank = q * total;
  let [below, bound] = [0, 0];
  for (const bucket of cumulative) {
    if (bucket.count >= rank) {
      if (bucket.bound === Infinity) return bound;
      const inside = bucket.count - below;
      return bound + (bucket.bound - bound) * (inside ? (rank - below) / inside : 0);
    }
    [below, bound] = [bucket.count, bucket.bound];
  }
  return bound;
}

function buckets(scrape, name, labels) {
  const wanted = Object.entries(labels);
  const found = (scrape.get(`${name}_bucket`) ?? []).filter((each) =>
    wanted.every(([label, text]) => each.labels[label] === text),
  );
  const sums = new Map();
  for (const {
    labels: { le },
    value,
  } of found) {
    const bound = Number(le.replace("Inf", "Infinity"));
    sums.set(bound, (sums.get(bound) ?? 0) + value);
  }
  return new Map([...sums].sort(([a], [b]) => a - b));
}
