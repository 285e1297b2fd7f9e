/** Orders of goals, drawn as paths and listed with their scores, best first. */

import { byId, decimals, empty, h, svg } from "./dom.js";

const ROW_PX = 44;
const STEP_PX = [44, 150];

export function clearOrders() {
  byId("orders-facts").textContent = "";
  byId("orders").replaceChildren(empty("Add two or more goals to see their best orders."));
}

/**
 * @param {{orders: {order: string[], score: number}[], next_goal: string}} plan
 * @param {{id: string, text: string, speaker: string}[]} goals In the order of the list.
 * @param {{adopt: (ids: string[]) => void, pursue: (goal: any) => void}} deeds
 */
export function drawOrders({ orders, next_goal }, goals, { adopt, pursue }) {
  const next = goals.find(({ id }) => id === next_goal);
  byId("orders-facts").textContent = "no other order scores higher";
  const ranked = h(
    "ol.ranked",
    { "aria-label": "Orders, best first", vars: { count: String(goals.length) } },
    ...orders.map((order, rank) => line(order, rank, goals, adopt)),
  );
  byId("orders").replaceChildren(
    h(
      "div.scroll.paths",
      { tabindex: "0", role: "group", "aria-label": "Orders as paths" },
      picture(orders, goals),
    ),
    ranked,
    h(
      "p.next",
      {},
      h("span.soft", {}, "Next: "),
      h("strong", { dir: "auto" }, next.text),
      " ",
      h("button", { type: "button", onclick: () => pursue(next) }, "Rank toward it"),
    ),
  );
  light(0);
}

/** Draw goals as lines and places as columns; each order is a path, the best in front. */
function picture(orders, goals) {
  const count = goals.length;
  const room = byId("orders").clientWidth;
  const [left, top] = [Math.max(Math.min(room * 0.36, 330), 140), 30];
  const step = Math.max(STEP_PX[0], Math.min((room - left - 40) / (count - 1), STEP_PX[1]));
  const [width, height] = [left + step * (count - 1) + 40, top + ROW_PX * count];
  const x = (place) => left + step * place;
  const y = (id) => top + ROW_PX * (goals.findIndex((goal) => goal.id === id) + 0.5);
  const rows = goals.map(({ id, text }, row) => [
    svg("line.track", { x1: left - 14, x2: width - 26, y1: y(id), y2: y(id) }),
    svg(
      "foreignObject",
      { x: 0, y: y(id) - ROW_PX / 2, width: left - 24, height: ROW_PX },
      h("div.goal-name", {}, h("b", {}, row + 1), h("span", { dir: "auto", title: text }, text)),
    ),
  ]);
  const heads = goals.map((_, place) =>
    svg("text.place", { x: x(place), y: 16, "text-anchor": "middle" }, ordinal(place + 1)),
  );
  const paths = orders.map(({ order: ids }, rank) => {
    const d = ids
      .map((id, place) =>
        place ? bend(x(place - 1), y(ids[place - 1]), x(place), y(id)) : `M${x(0)} ${y(id)}`,
      )
      .join("");
    const stops = ids.map((id, place) => svg("circle", { cx: x(place), cy: y(id), r: 6 }));
    return svg("g.order", { "data-rank": rank }, svg("path", { d }), ...stops);
  });
  const label = `Best order: ${inWords(orders[0].order, goals, ", then ")}`;
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...rows.flat(),
    ...heads,
    ...paths.reverse(),
  );
}

const ordinal = (number) => {
  const teen = Math.floor(number / 10) % 10 === 1;
  return `${number}${(!teen && ["", "st", "nd", "rd"][number % 10]) || "th"}`;
};

const bend = (x0, y0, x1, y1) => `C${(x0 + x1) / 2} ${y0} ${(x0 + x1) / 2} ${y1} ${x1} ${y1}`;

function line({ order: ids, score }, rank, goals, adopt) {
  const numbers = ids.map((id) => goals.findIndex((goal) => goal.id === id) + 1);
  const steps = numbers.flatMap((number, place) => [
    place ? h("i", { "aria-hidden": "true" }, "→") : null,
    h("b", {}, number),
  ]);
  return h(
    "li",
    {},
    h(
      "button",
      {
        type: "button",
        "data-rank": rank,
        title: inWords(ids, goals, " → "),
        onfocus: () => light(rank),
        onmouseenter: () => light(rank),
        onclick: () => adopt(ids),
      },
      h("span.steps", {}, ...steps),
      h("span.score", {}, decimals(score)),
      h("span.soft", {}, "use this order"),
    ),
  );
}

function light(rank) {
  for (const element of byId("orders").querySelectorAll("[data-rank]")) {
    element.classList.toggle("bright", element.dataset.rank === String(rank));
    if (element.matches(".bright.order")) element.parentNode.append(element);
  }
}

const inWords = (ids, goals, between) =>
  ids.map((id) => goals.find((goal) => goal.id === id).text).join(between);
