/** Goals and utterances to avoid: the console ranks again whenever one of them or the session changes. */

import { call } from "./api.js";
import { session } from "./session.js";
import { byId, debounced, decimals, h } from "./dom.js";
import { clearMoves, drawMoves } from "./moves.js";
import { attempt } from "./notices.js";

let running = new AbortController();
let asked = "";

export function startGoals() {
  byId("add-goal").addEventListener("click", () => addGoal().focus());
  byId("add-avoid").addEventListener("click", () => addAvoided().focus());
  byId("goals-form").addEventListener("submit", (event) => event.preventDefault());
  byId("goals-form").addEventListener("input", (event) => {
    const output = event.target.parentNode.querySelector("output");
    if (event.target.type === "range") output.textContent = decimals(Number(event.target.value), 2);
    soon();
  });
  session.addEventListener("change", soon);
  window.addEventListener("hashchange", soon);
  addGoal();
}

/** Replace all goals and utterances to avoid by one goal, which the user should say; rank. */
export async function leadTo(text) {
  byId("goal-list").replaceChildren();
  byId("avoid").replaceChildren();
  addGoal(text);
  await update();
}

/** Add a goal. */
export function addGoal(text = "", speaker = "user") {
  const free = [...byId("goal-list").querySelectorAll(".text")].find((field) => !field.value);
  if (free && text) {
    free.value = text;
    free.closest(".aim").querySelector("select").value = speaker;
    soon();
    return free;
  }
  const weight = h(
    "label.slider",
    {},
    "weight",
    h("input.number", { type: "range", min: -1, max: 2, step: 0.1, value: 1 }),
    h("output", {}, "1.00"),
  );
  return add(byId("goal-list"), "Goal", text, speaker, weight);
}

function addAvoided() {
  const threshold = h(
    "label.slider",
    {},
    "threshold",
    h("input.number", { type: "range", min: 0, max: 2, step: 0.01, value: 0.5 }),
    h("output", {}, "0.50"),
  );
  return add(byId("avoid"), "Avoid", "", "user", threshold);
}

function add(place, name, text, speaker, number) {
  const speakers = [
    ["user", "the user says"],
    ["", `the ${session.responder} says`],
  ];
  const hint = name === "Goal" ? "Great, thank you so much!" : "Let me speak to your manager.";
  const row = h(
    "fieldset.aim",
    {},
    h("legend.hidden-visually", {}, name),
    h(`span.mark.${name.toLowerCase()}`, { "aria-hidden": "true" }, name),
    h(
      "select",
      { "aria-label": "Speaker" },
      ...speakers.map(([value, words]) => h("option", { value }, words)),
    ),
    h("input.text", { "aria-label": name, dir: "auto", placeholder: hint }),
    number,
    h("button.quiet", { type: "button", "aria-label": "Remove", onclick: () => remove(row) }, "×"),
  );
  row.querySelector("select").value = speaker === "user" ? "user" : "";
  const field = row.querySelector(".text");
  field.value = text;
  place.append(row);
  soon();
  return field;
}

function remove(row) {
  const next = row.nextElementSibling?.querySelector(".text") ?? byId("add-goal");
  row.remove();
  next.focus();
  soon();
}

const soon = debounced(() => attempt(update));

async function update() {
  if (location.hash !== "#goals" || session.busy) return;
  const goals = values("goal-list").map(({ number, ...goal }) => ({ ...goal, weight: number }));
  const avoid = values("avoid").map(({ number, ...goal }) => ({ ...goal, threshold: number }));
  const { name, settings, turns } = session;
  const fit_weight = Number(byId("fit-weight").value);
  const body = {
    session_id: name,
    pool: settings.pool,
    goals,
    avoid,
    fit_weight,
    ...session.offered,
    ...session.aggregated,
  };
  const question = JSON.stringify([body, turns.length, session.answer?.pool]);
  if (question === asked) return;
  running.abort();
  if (!turns.length)
    return nothing("Say something first: a ranking needs a context.");
  if (!goals.length && !avoid.length)
    return nothing(
      "Write a goal: what the user should say, or what the bot should be able to say.",
    );
  running = new AbortController();
  asked = question;
  byId("moves").toggleAttribute("data-busy", true);
  try {
    const answer = await call("POST", "rank", { body, repeatable: true, signal: running.signal });
    drawMoves(answer, body);
  } catch (error) {
    if (asked === question) asked = "";
    throw error;
  } finally {
    byId("moves").toggleAttribute("data-busy", false);
  }
}

/** The rows with a text, as fields of a request. */
function values(place) {
  return [...byId(place).querySelectorAll(".aim")].flatMap((row) => {
    const text = row.querySelector(".text").value.trim();
    const speaker = row.querySelector("select").value || session.responder;
    return text ? [{ text, speaker, number: Number(row.querySelector(".number").value) }] : [];
  });
}

function nothing(words) {
  asked = "";
  clearMoves(words);
}
