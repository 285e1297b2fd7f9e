/** Live durations of the stages, from regular scrapes of /metrics. */

import { text } from "./api.js";
import { byId, decimals, empty, h, milliseconds, svg, thousands } from "./dom.js";
import { attempt } from "./notices.js";
import { quantile, samples, seen, value, values } from "./prometheus.js";

const EVERY_MS = 2000;
const SELDOM = 5;
const KEPT_S = 310;
const LEAST_MS = 0.5;
const MOST_MS = 2000;
const TICKS = [1, 10, 100, 1000];
const NAMES = {
  session_read: "read the session",
  session_write: "write the session",
  queue: "wait in the encoder queue",
  tokenize: "tokenise",
  encode: "encode",
  search: "search",
  rerank: "re-rank, explain",
  plan: "plan",
};
const LANES = {
  critical: "critical: a request waits for them",
  rerank: "rerank: pairs of the cross-encoder",
  idle: "idle: for the next turn",
  bulk: "bulk: uploads",
};

/** @type {{at: number, scrape: ReturnType<typeof samples>}[]} */
let kept = [];

export function startLatency() {
  byId("latency-window").addEventListener("change", draw);
  window.addEventListener("hashchange", () => visible() && attempt(poll));
  let ticks = 0;
  setInterval(() => (visible() || ticks++ % SELDOM === 0) && poll().catch(() => {}), EVERY_MS);
}

/** Whether the view is visible; otherwise it is enough to scrape now and then. */
const visible = () => location.hash === "#latency" && !document.hidden;

async function poll() {
  const scrape = samples(await text("metrics"));
  const at = performance.now() / 1000;
  if (
    kept.length &&
    value(scrape, "turnwise_requests_total") < value(kept[0].scrape, "turnwise_requests_total")
  )
    kept = [];
  kept = [...kept.filter((old) => at - old.at < KEPT_S), { at, scrape }];
  if (visible()) draw();
}

function draw() {
  const now = kept.at(-1);
  if (!now) return;
  const window_s = Number(byId("latency-window").value);
  const then = kept.find(({ at }) => now.at - at <= window_s + 1);
  const whole = window_s === Infinity || then === now;
  const before = whole ? null : then.scrape;
  const started = value(now.scrape, "turnwise_requests_created");
  const seconds = whole ? Date.now() / 1000 - started : now.at - then.at;
  byId("latency-facts").textContent = whole
    ? "p50 and p95 since the start"
    : `p50 and p95 of the last ${Math.round(seconds)} s`;
  byId("stages").replaceChildren(stages(before, now.scrape));
  byId("routes").replaceChildren(routes(before, now.scrape, seconds));
  byId("queue").replaceChildren(...queue(before, now.scrape));
}

function stages(before, after) {
  const names = values(after, "turnwise_stage_seconds_bucket", "stage");
  const order = Object.keys(NAMES).filter((name) => names.includes(name));
  return durations(
    "Stage",
    order.map((stage) => [NAMES[stage], seen(before, after, "turnwise_stage_seconds", { stage })]),
  );
}

function routes(before, after, seconds) {
  const all = after.get("turnwise_request_seconds_count") ?? [];
  const rows = all
    .filter(
      ({ labels }) =>
        !["/metrics", "/livez", "/readyz"].includes(labels.route) &&
        !/^\/(console|$)/.test(labels.route),
    )
    .map(({ labels }) => [
      `${labels.method} ${labels.route}`,
      seen(before, after, "turnwise_request_seconds", labels),
    ])
    .filter(([, buckets]) => buckets.at(-1).count > 0);
  return rows.length
    ? durations("Request", rows, seconds)
    : empty("No requests in this time. Say something, and look again.");
}

/** Return a table with count, p50 and p95 of each row, and both as a bar on a logarithmic scale. */
function durations(name, rows, seconds = 0) {
  const head = [name, seconds ? "Rate" : "Count", "p50", "p95"].map((words) =>
    h("th", { scope: "col" }, words),
  );
  const axis = h(
    "th.axis",
    { "aria-hidden": "true" },
    ...TICKS.map((ms) =>
      h("span", { vars: { at: String(where(ms)) } }, milliseconds(ms).replace(".0", "")),
    ),
  );
  const lines = rows.map(([words, buckets]) => {
    const count = buckets.at(-1)?.count ?? 0;
    const [half, most] = [0.5, 0.95].map((q) => quantile(buckets, q));
    const shown = [half, most].map((s) =>
      h("td.number", {}, s === null ? "–" : milliseconds(s * 1000)),
    );
    const often = seconds ? `${decimals(count / seconds, 1)}/s` : thousands(count);
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, words),
      h("td.number", {}, often),
      ...shown,
      h("td.range", {}, bar(half, most)),
    );
  });
  return h(
    "table.plain.durations",
    {},
    h("thead", {}, h("tr", {}, ...head, axis)),
    h("tbody", {}, ...lines),
  );
}

function bar(half, most) {
  if (half === null) return null;
  return h("span.span", {
    "aria-hidden": "true",
    vars: { from: String(where(half * 1000)), to: String(where(most * 1000)) },
  });
}

/** Place of a duration on the scale, from 0 to 1. */
function where(ms) {
  const share = Math.log(ms / LEAST_MS) / Math.log(MOST_MS / LEAST_MS);
  return Math.min(Math.max(share, 0), 1);
}

function queue(before, after) {
  const grown = (name) => sum(after, name) - (before ? sum(before, name) : 0);
  const batches = grown("turnwise_batch_texts_count");
  const mean = batches ? grown("turnwise_batch_texts_sum") / batches : 0;
  const encoded = grown("turnwise_encoded_texts_total");
  const hits = grown("turnwise_vector_cache_hits_total");
  const share = hits + encoded ? `${Math.round((100 * hits) / (hits + encoded))} %` : "–";
  return [
    figure(
      "Waiting texts",
      thousands(sum(after, "turnwise_queue_texts")),
      trace(kept.map(({ scrape }) => sum(scrape, "turnwise_queue_texts"))),
    ),
    ...Object.entries(LANES).map(([lane, words]) =>
      figure(`… ${words}`, thousands(value(after, "turnwise_queue_texts", { lane }))),
    ),
    figure(
      "Age of the oldest critical text",
      milliseconds(value(after, "turnwise_queue_oldest_seconds") * 1000),
    ),
    figure("Texts per batch", batches ? decimals(mean, 1) : "–"),
    figure("Encoded texts", thousands(encoded)),
    figure("Found in the cache", share),
    figure("Rejected requests", thousands(grown("turnwise_rejected_requests_total"))),
    figure("Dropped texts", thousands(grown("turnwise_dropped_texts_total"))),
  ];
}

const sum = (scrape, name) =>
  (scrape.get(name) ?? []).reduce((total, sample) => total + sample.value, 0);

const figure = (words, number, extra = null) =>
  h("div", {}, h("dt", {}, words), h("dd", {}, number, extra));

function trace(depths) {
  const most = Math.max(...depths, 1);
  const points = depths.map(
    (depth, i) => `${(120 * i) / Math.max(depths.length - 1, 1)},${23 - (22 * depth) / most}`,
  );
  return svg(
    "svg.trace",
    { viewBox: "0 0 120 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polyline", { points: points.join(" ") }),
  );
}
