/** Colours cells by contributions; the style sheet mixes the colours for light and dark. */

import { session } from "./session.js";
import { byId, decimals, empty, h } from "./dom.js";

/**
 * Colour an element by a value; `undefined` removes the colour. The square root makes small values visible.
 * @param {HTMLElement} element
 * @param {number | undefined} value
 * @param {number} most Magnitude of the deepest colour.
 */
export function heat(element, value, most) {
  element.classList.toggle("for", value > 0);
  element.classList.toggle("against", value < 0);
  element.style.setProperty(
    "--heat",
    String(value ? Math.min(Math.sqrt(Math.abs(value) / most), 1) : 0),
  );
}

export function startHeatMap() {
  session.addEventListener("change", draw);
  session.addEventListener("select", mark);
}

/** Draw a line for each candidate and a column for each utterance; a line adds up to the score. */
function draw() {
  const explained = session.candidates.filter(({ contributions }) => contributions?.length);
  if (!explained.length) {
    const why = session.explain
      ? "Contributions appear with the candidates."
      : "This pool uses the pairwise model, whose scores have no contributions.";
    byId("why").replaceChildren(empty(why));
    return;
  }
  const said = session.utterances;
  const most = Math.max(...explained.flatMap(({ contributions }) => contributions.map(Math.abs)));
  const head = explained[0].contributions.map((_, place) => column(said[place], place));
  const table = h(
    "table.heat-map",
    {},
    h(
      "caption.hidden-visually",
      {},
      "Contribution of each utterance to the score of each candidate",
    ),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Candidate"),
        ...head,
        h("th.sum", { scope: "col" }, "Score"),
      ),
    ),
    h("tbody", {}, ...explained.map((candidate) => line(candidate, said, most))),
  );
  const scroll = h("div.scroll", { tabindex: "0", role: "group", "aria-label": "Heat map" }, table);
  const matched = explained.flatMap((candidate) => candidate.matched ?? []);
  byId("why").replaceChildren(scroll, scale(most, matched));
  scroll.scrollLeft = scroll.scrollWidth;
  mark();
}

function column(run, place) {
  const side = run?.[0].speaker === session.responder ? "bot" : "user";
  return h(`th.${side}`, { scope: "col", title: words(run) }, place + 1);
}

/** The cell of the newest utterance has the parts from an example and from the reply before. */
function line({ id, text, score, contributions, matched }, said, most) {
  const cells = contributions.map((part, place) => {
    const isMatched = matched && place === contributions.length - 1;
    const from = `${decimals(part)} from “${words(said[place])}”`;
    const cell = h(
      isMatched ? "td.cell.by-example" : "td.cell",
      { title: isMatched ? `${from}, with ${sourcesOf(matched)}` : from },
      decimals(part, 2),
      isMatched ? h("span.hidden-visually", {}, ` with ${kindOf(matched)}`) : null,
    );
    heat(cell, part, most);
    return cell;
  });
  const name = h("th", { scope: "row", title: text }, h("span", { dir: "auto" }, text));
  const row = h("tr", { "data-id": id }, name, ...cells, h("td.sum", {}, decimals(score)));
  row.addEventListener("click", () => session.select(id));
  return row;
}

function sourcesOf({ example, learned, after }) {
  const found = example ? `the example “${example}”` : learned ? "a learned example" : null;
  return [found, after && `the reply ${after}, which it follows`].filter(Boolean).join(" and ");
}

function kindOf({ example, learned }) {
  return example || learned ? "an example" : "the reply that it follows";
}

function scale(most, matched) {
  const side = h("span.side.user", {}, "user");
  const other = h("span.side.bot", {}, session.responder);
  const ramp = [decimals(-most, 2), h("span.ramp"), decimals(most, 2)];
  const kinds = [...new Set(matched.map(kindOf))].sort();
  const key = kinds.length ? h("span.key", {}, `with ${kinds.join(" or ")}`) : null;
  return h("p.scale.soft", {}, ...ramp, side, other, key);
}

function mark() {
  for (const row of byId("why").querySelectorAll("tr[data-id]")) {
    row.classList.toggle("selected", row.dataset.id === session.selected);
  }
}

const words = (run) => (run ?? []).map(({ text }) => text).join(" ");
