/** The score matrix as a picture: a column for each utterance, a line for each candidate.
 *
 * Scores are comparable within one utterance only, so each column has its own scale, from its lowest
 * to its highest score.
 */

import { session } from "./session.js";
import { byId, decimals, h, svg } from "./dom.js";

export const COLOURS = 8;

const HEIGHT = 260;
const EDGE = { top: 14, bottom: 26, left: 16, right: 14 };
const LABEL_PX = 24;

const place = byId("scores");
/** @type {Map<string, number>} */
let colours = new Map();
let matrix = null;

export function clearLines() {
  matrix = null;
}

/** Draw a new matrix, or the last one again. */
export function drawLines(fresh = matrix) {
  if (!fresh) return;
  if (fresh !== matrix) {
    matrix = fresh;
    colour();
  }
  const width = Math.max(place.clientWidth - (place.clientWidth > 560 ? 250 : 0), 240);
  const { ids, turns, scores } = matrix;
  const share = scores.map(shares);
  const x = (turn) =>
    EDGE.left +
    ((width - EDGE.left - EDGE.right) * (turn + (turns.length === 1 ? 0.5 : 0))) /
      Math.max(turns.length - 1, 1);
  const y = (value) => EDGE.top + (HEIGHT - EDGE.top - EDGE.bottom) * (1 - value);
  const lines = ids.map((id, candidate) => {
    const points = share.map((line, turn) => [x(turn), y(line[candidate])]);
    return svg(
      `g.line.c${colours.get(id)}`,
      { "data-id": id },
      svg("path", { d: curve(points) }),
      ...dots(points, turns.length),
    );
  });
  const picture = svg(
    "svg",
    {
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "img",
      "aria-label": spoken(),
    },
    ...turns.map((turn, column) => tick(turn, x(column), column)),
    ...lines,
  );
  place.replaceChildren(h("div.picture", {}, picture, labels(y, share)), numbers());
  light(null);
}

/** Scale scores from the lowest, 0, to the highest, 1. */
function shares(line) {
  const least = Math.min(...line);
  const range = Math.max(...line) - least;
  return line.map((score) => (range > 0 ? (score - least) / range : 0.5));
}

function curve(points) {
  let [[beforeX, beforeY], ...rest] = points;
  let d = `M${beforeX.toFixed(1)} ${beforeY.toFixed(1)}`;
  for (const [x, y] of rest) {
    const middle = ((beforeX + x) / 2).toFixed(1);
    d += `C${middle} ${beforeY.toFixed(1)} ${middle} ${y.toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)}`;
    [beforeX, beforeY] = [x, y];
  }
  return d;
}

function dots(points, count) {
  const shown = count > 16 ? points.slice(-1) : points;
  return shown.map(([cx, cy]) => svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 3.5 }));
}

function tick(turn, x, column) {
  const every = Math.ceil(matrix.turns.length / 20);
  const run = session.utterances[column];
  const side = run?.[0].speaker === session.responder ? "bot" : "user";
  const named = (matrix.turns.length - 1 - column) % every === 0;
  return svg(
    `g.tick.${side}`,
    {},
    svg("title", {}, `Turn ${turn}: ${run?.map(({ text }) => text).join(" ") ?? ""}`),
    svg("line", { x1: x, x2: x, y1: EDGE.top - 6, y2: HEIGHT - EDGE.bottom + 6 }),
    named ? svg("text", { x, y: HEIGHT - 6, "text-anchor": "middle" }, turn) : null,
  );
}

/** Label each line at its end; labels that would overlap are moved apart. */
function labels(y, share) {
  const last = share.at(-1);
  const order = matrix.ids.map((_, candidate) => candidate).sort((a, b) => last[b] - last[a]);
  const tops = spread(order.map((candidate) => y(last[candidate]) - LABEL_PX / 2));
  const items = order.map((candidate, rank) => {
    const id = matrix.ids[candidate];
    const text = textOf(id);
    return h(
      "li",
      { vars: { top: `${tops[rank]}px` } },
      h(
        `button.c${colours.get(id)}`,
        {
          type: "button",
          "data-id": id,
          title: text,
          onclick: () => session.select(id),
          onfocus: () => light(id),
          onblur: () => light(null),
          onmouseenter: () => light(id),
          onmouseleave: () => light(null),
        },
        h("i"),
        h("span", { dir: "auto" }, text),
        h("b", {}, decimals(matrix.scores.at(-1)[candidate], 2)),
      ),
    );
  });
  return h("ul.ends", { "aria-label": "Candidates of the picture" }, ...items);
}

function spread(tops) {
  const apart = [...tops];
  for (let i = 1; i < apart.length; i++) apart[i] = Math.max(apart[i], apart[i - 1] + LABEL_PX);
  const over = Math.max((apart.at(-1) ?? 0) + LABEL_PX - HEIGHT, 0);
  if (!over) return apart;
  let limit = HEIGHT - LABEL_PX;
  for (let i = apart.length - 1; i >= 0; i--, limit -= LABEL_PX)
    apart[i] = Math.min(apart[i], limit);
  return apart;
}

function numbers() {
  const { ids, turns, scores } = matrix;
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "Candidate"),
    ...turns.map((turn) => h("th", { scope: "col" }, turn)),
  );
  const body = ids.map((id, candidate) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", title: textOf(id) }, h("span", { dir: "auto" }, textOf(id))),
      ...scores.map((line) => h("td", {}, decimals(line[candidate]))),
    ),
  );
  const table = h("table.heat-map", {}, h("thead", {}, head), h("tbody", {}, ...body));
  return h(
    "details",
    {},
    h("summary", {}, "Numbers"),
    h("div.scroll", { tabindex: "0", role: "group", "aria-label": "Score matrix" }, table),
  );
}

function spoken() {
  const last = shares(matrix.scores.at(-1));
  const best = matrix.ids[last.indexOf(Math.max(...last))];
  return `${matrix.ids.length} candidates over ${matrix.turns.length} utterances. Best now: ${textOf(best)}`;
}

/** Bring a candidate to the front: the one under the pointer, or the selected one. */
export function light(id) {
  const bright = id ?? session.selected;
  for (const element of place.querySelectorAll("[data-id]")) {
    element.classList.toggle("bright", element.dataset.id === bright);
    if (element.dataset.id === bright && element.matches("g")) element.parentNode.append(element);
  }
}

/** Assign a colour to each candidate; it keeps the colour while it is in the picture. */
function colour() {
  const kept = new Map(
    matrix.ids.filter((id) => colours.has(id)).map((id) => [id, colours.get(id)]),
  );
  const free = Array.from({ length: COLOURS }, (_, i) => i).filter(
    (i) => ![...kept.values()].includes(i),
  );
  for (const id of matrix.ids) if (!kept.has(id)) kept.set(id, free.shift());
  colours = kept;
}

const textOf = (id) =>
  session.candidates.find((c) => c.id === id)?.text ?? session.seen.get(id) ?? id;
