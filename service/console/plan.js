/** The plan: goals that the user drags or types, and the service orders. */

import { call, path } from "./api.js";
import { session } from "./session.js";
import { announce, byId, empty, h } from "./dom.js";
import { addGoal } from "./goals.js";
import { attempt } from "./notices.js";
import { clearOrders, drawOrders } from "./orders.js";

const STORED = "turnwise.plan";
const MOVED = "application/x-turnwise-goal";

const list = byId("plan-goals");
/** @type {{id: string, text: string, speaker: string}[]} `speaker` "" is the responder. */
let goals = JSON.parse(sessionStorage.getItem(STORED) ?? "[]");
let running = new AbortController();
/** The last answer; it stays valid while the set of goals is the same. */
let plan = null;

export function startPlan() {
  byId("plan-add").addEventListener("submit", (event) => {
    event.preventDefault();
    if (insert(byId("plan-text").value)) byId("plan-add").reset();
  });
  byId("plan-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(order);
  });
  byId("ideas-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(search);
  });
  session.addEventListener(
    "change",
    () => byId("ideas-text").value || suggest(session.candidates),
  );
  list.addEventListener("dragover", over);
  list.addEventListener("dragleave", () => list.classList.remove("over"));
  list.addEventListener("drop", drop);
  draw();
  showOrders();
}

/** Replace the goals by other texts, and order them. @param {string[]} texts */
export async function orderThese(texts) {
  goals = [];
  for (const text of texts) insert(text);
  byId("plan-method").value = "chain";
  await order();
}

/** Add a text as a goal, once. */
function insert(text, at = goals.length) {
  const words = text.trim().replace(/\s+/g, " ");
  if (!words || goals.some((goal) => goal.text === words)) return false;
  const names = new Set(goals.map(({ id }) => id));
  let number = 1;
  while (names.has(`g${number}`)) number++;
  goals.splice(at, 0, { id: `g${number}`, text: words, speaker: "" });
  plan = null;
  changed(`Goal ${at + 1} of ${goals.length}: ${words}`);
  return true;
}

function move(id, to) {
  const from = goals.findIndex((goal) => goal.id === id);
  const place = Math.max(0, Math.min(to, goals.length - 1));
  if (from < 0 || place === from) return;
  goals.splice(place, 0, ...goals.splice(from, 1));
  changed(`Now ${place + 1} of ${goals.length}: ${goals[place].text}`);
}

function remove(id) {
  const at = goals.findIndex((goal) => goal.id === id);
  goals = goals.filter((goal) => goal.id !== id);
  plan = null;
  changed("Removed");
  (
    list.querySelectorAll("[data-remove]")[Math.min(at, goals.length - 1)] ?? byId("plan-text")
  ).focus();
}

function changed(words) {
  sessionStorage.setItem(STORED, JSON.stringify(goals));
  announce(words);
  draw();
  showOrders();
}

function draw() {
  const held = document.activeElement?.closest?.("#plan-goals [data-focus]")?.dataset.focus;
  list.replaceChildren(...goals.map(item));
  if (!goals.length)
    list.append(
      h(
        "li.hollow",
        {},
        empty("Drop goals here: turns of the transcript, or candidates of the pool."),
      ),
    );
  byId("plan-form").querySelector(".primary").disabled = goals.length < 2;
  if (held) list.querySelector(`[data-focus="${held}"]`)?.focus();
}

function item(goal, place) {
  const { id, text } = goal;
  const who = h(
    "select",
    { "aria-label": "Speaker", "data-focus": `who-${id}` },
    h("option", { value: "" }, session.responder),
    h("option", { value: "user" }, "user"),
  );
  who.value = goal.speaker;
  who.addEventListener("change", () => {
    goal.speaker = who.value;
    plan = null;
    changed(`Said by the ${who.selectedOptions[0].text}`);
  });
  const step = (by, name, sign) =>
    h(
      "button.quiet",
      {
        type: "button",
        "data-focus": `${name}-${id}`,
        "aria-label": `Move ${name}: ${text}`,
        disabled: !goals[place + by],
        onclick: () => move(id, place + by),
      },
      sign,
    );
  return h(
    "li",
    {
      "data-id": id,
      draggable: "true",
      ondragstart: (event) => carry(event, id, text),
      onkeydown: (event) => keys(event, id, place),
    },
    h("span.grip", { "aria-hidden": "true" }, "⠿"),
    h("span.rank", {}, place + 1),
    h("span.text", { dir: "auto", title: text }, text),
    who,
    h(
      "span.deeds",
      {},
      step(-1, "up", "↑"),
      step(1, "down", "↓"),
      h(
        "button.quiet",
        {
          type: "button",
          "data-remove": "",
          "aria-label": `Remove: ${text}`,
          onclick: () => remove(id),
        },
        "×",
      ),
    ),
  );
}

function keys(event, id, place) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!event.altKey || !step) return;
  event.preventDefault();
  move(id, place + step);
}

function carry(event, id, text) {
  event.dataTransfer.setData(MOVED, id);
  event.dataTransfer.setData("text/plain", text);
  event.dataTransfer.effectAllowed = "copyMove";
}

function over(event) {
  event.preventDefault();
  event.dataTransfer.dropEffect = event.dataTransfer.types.includes(MOVED) ? "move" : "copy";
  list.classList.add("over");
}

function drop(event) {
  event.preventDefault();
  list.classList.remove("over");
  const to = gap(event.clientY);
  const id = event.dataTransfer.getData(MOVED);
  const from = goals.findIndex((goal) => goal.id === id);
  if (id) move(id, from < to ? to - 1 : to);
  else insert(event.dataTransfer.getData("text/plain"), to);
}

/** Return the place for a drop: before the first goal whose middle is below the pointer. */
function gap(pointer) {
  const middles = [...list.querySelectorAll("li[data-id]")].map((row) => {
    const { top, height } = row.getBoundingClientRect();
    return top + height / 2;
  });
  const below = middles.findIndex((middle) => pointer < middle);
  return below < 0 ? goals.length : below;
}

async function order() {
  running.abort();
  running = new AbortController();
  const known = session.turns.length ? { session_id: session.name } : {};
  const asked = goals.map(({ id, text, speaker }) => ({
    id,
    text,
    speaker: speaker || session.responder,
  }));
  const body = {
    ...known,
    goals: asked,
    method: byId("plan-method").value,
    top: Number(byId("plan-top").value) || 1,
  };
  plan = await call("POST", "plan", { body, repeatable: true, signal: running.signal });
  showOrders();
  announce(byId("orders").querySelector("svg").getAttribute("aria-label"));
}

function showOrders() {
  if (plan) return drawOrders(plan, goals, { adopt, pursue });
  running.abort();
  clearOrders();
}

function adopt(ids) {
  goals.sort((a, b) => ids.indexOf(a.id) - ids.indexOf(b.id));
  changed("Order changed");
}

function pursue({ text, speaker }) {
  location.hash = "#goals";
  addGoal(text, speaker === "user" ? "user" : "").focus();
}

async function search() {
  const body = { text: byId("ideas-text").value, top_k: 8 };
  const found = await call("POST", `${path("pools", session.settings.pool)}/search`, {
    body,
    repeatable: true,
  });
  suggest(found.candidates);
}

function suggest(candidates) {
  const items = candidates.map(({ text }) =>
    h(
      "li",
      { draggable: "true", ondragstart: (event) => event.dataTransfer.setData("text/plain", text) },
      h("span.grip", { "aria-hidden": "true" }, "⠿"),
      h("span.text", { dir: "auto" }, text),
      h(
        "button",
        { type: "button", "aria-label": `Add: ${text}`, onclick: () => insert(text) },
        "Add",
      ),
    ),
  );
  byId("ideas").replaceChildren(...items);
  if (!items.length)
    byId("ideas").append(h("li", {}, empty("Search, and drag what you find into the list above.")));
}
