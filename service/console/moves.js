/** The ranking toward goals: lines show how candidates move, and a list the rejected ones. */

import { noCandidates } from "./candidates.js";
import { use } from "./chat.js";
import { session } from "./session.js";
import { announce, byId, decimals, empty, h, svg } from "./dom.js";

const SHOWN = 10;
const ROW_PX = 52;
const GAP_PX = 64;

/** @param {string} words What to do first. */
export function clearMoves(words) {
  byId("moves").replaceChildren(empty(words));
  byId("moves-facts").textContent = "";
  byId("rejected-panel").hidden = true;
}

/**
 * @param {{ranking: any[], rejected: any[]}} answer Of /rank.
 * @param {{goals: any[], avoid: any[], pool: string}} asked
 */
export function drawMoves({ ranking, rejected }, { goals, avoid, pool }) {
  if (!ranking.length && !rejected.length)
    return clearMoves(noCandidates(pool));
  const byIndex = [...ranking, ...rejected].sort((a, b) => a.index - b.index);
  const out = new Set(rejected.map(({ index }) => index));
  const before = byIndex.slice(0, SHOWN);
  const after = ranking.slice(0, SHOWN);
  byId("moves-facts").textContent = `short list of ${byIndex.length} candidates of “${pool}”`;
  byId("moves").replaceChildren(
    h(
      "div.moves",
      { vars: { row: `${ROW_PX}px`, gap: `${GAP_PX}px` } },
      h("h3.before", {}, "As the next utterance"),
      h("h3.after", {}, goals.length ? "Toward the goal" : "Not rejected"),
      h(
        "ol.before",
        { "aria-label": "As the next utterance" },
        ...before.map((candidate) => old(candidate, out)),
      ),
      links(before, after),
      h(
        "ol.after",
        { "aria-label": "Toward the goal" },
        ...after.map((candidate, rank) => moved(candidate, rank, byIndex)),
      ),
    ),
  );
  drawRejected(rejected, avoid);
  announce(
    `${after[0] ? `Best now: ${after[0].text}` : "All are rejected"}. ${rejected.length} rejected.`,
  );
}

function old({ text, index }, out) {
  const words = h("span.text", { dir: "auto", title: text }, text);
  return h(out.has(index) ? "li.out" : "li", {}, h("span.rank", {}, index + 1), words);
}

function moved({ id, text, index, score, goals }, rank, all) {
  const was = all.findIndex((candidate) => candidate.index === index);
  const rise = was - rank;
  const arrow = rise ? `${rise > 0 ? "▲" : "▼"} ${Math.abs(rise)}` : "=";
  const kind = rise > 0 ? "up" : rise < 0 ? "down" : "same";
  const spoken = rise ? `${rise > 0 ? "up" : "down"} ${Math.abs(rise)}` : "unchanged";
  const reached = goals.map((reach) => decimals(reach, 2)).join(" · ");
  return h(
    "li",
    {},
    h("span.rank", {}, rank + 1),
    h("span.text", { dir: "auto", title: text }, text),
    h(
      `span.move.${kind}`,
      {},
      h("span", { "aria-hidden": "true" }, arrow),
      h("span.hidden-visually", {}, spoken),
    ),
    h("span.score", { title: reached ? `reachability ${reached}` : "" }, decimals(score)),
    h(
      "button",
      {
        type: "button",
        "aria-label": `Use: ${text}`,
        disabled: session.busy || !session.awaited,
        onclick: () => use({ id, text }),
      },
      "Use",
    ),
  );
}

/** Draw a line from a candidate's old place to its new one; it begins at the edge if the old place is not shown. */
function links(before, after) {
  const height = ROW_PX * Math.max(before.length, after.length);
  const y = (rank) => (rank + 0.5) * ROW_PX;
  const paths = after.map(({ index }, rank) => {
    const was = before.findIndex((candidate) => candidate.index === index);
    const from = was < 0 ? height : y(was);
    const kind = was < 0 || was > rank ? "up" : was < rank ? "down" : "same";
    return svg(`path.${kind}`, {
      d: `M0 ${from}C${GAP_PX / 2} ${from} ${GAP_PX / 2} ${y(rank)} ${GAP_PX} ${y(rank)}`,
    });
  });
  return svg(
    "svg.links",
    { width: GAP_PX, height, viewBox: `0 0 ${GAP_PX} ${height}`, "aria-hidden": "true" },
    ...paths,
  );
}

function drawRejected(rejected, avoid) {
  byId("rejected-panel").hidden = !avoid.length;
  byId("rejected-facts").textContent = rejected.length
    ? `${rejected.length} candidate${rejected.length > 1 ? "s" : ""}`
    : "no candidate passes a threshold; lower it to see the nearest";
  const worst = [...rejected].sort((a, b) => b.reachability - a.reachability);
  byId("rejected").replaceChildren(
    ...worst.map(({ text, avoid: place, reachability }) =>
      h(
        "li",
        {},
        h("span.text", { dir: "auto" }, text),
        h(
          "span.reason.soft",
          {},
          "leads to ",
          h("q", { dir: "auto" }, avoid[place].text),
          `: reachability ${decimals(reachability, 2)}, threshold ${decimals(avoid[place].threshold, 2)}`,
        ),
      ),
    ),
  );
}
