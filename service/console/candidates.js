/** The candidates: select one, let the bot say it, or edit it first. */

import { use, write } from "./chat.js";
import { isRejected, offered, reject } from "./feedback.js";
import { session } from "./session.js";
import { byId, decimals, empty, h, milliseconds } from "./dom.js";

const LEAST_RANGE = 0.25;

const list = byId("candidates");

export function startCandidates() {
  session.addEventListener("change", draw);
  session.addEventListener("select", mark);
  list.addEventListener("keydown", keys);
  byId("write").addEventListener("click", () => write());
}

function draw() {
  const { candidates, answer, turns } = session;
  const held = document.activeElement?.closest?.("#candidates .reply")?.dataset.id;
  const scores = candidates.map(({ score }) => score);
  list.replaceChildren(...candidates.map((candidate) => item(candidate, scores)));
  if (!candidates.length) list.append(h("li.none", {}, empty(nothing())));
  list.classList.toggle("past", candidates.length > 0 && !session.current);
  byId("answer-facts").textContent = facts(answer, turns);
  byId("timings").replaceChildren(...timings(answer?.timings_ms));
  mark();
  if (held) list.querySelector(`.reply[data-id="${CSS.escape(held)}"]`)?.focus();
}

function nothing() {
  const { turns, awaited, answer, settings } = session;
  if (!turns.length) return "Nothing has been said yet.";
  if (answer?.abstained) return "Abstained: ask back, hand over, or write a reply.";
  if (awaited && answer) return noCandidates(settings.pool);
  return awaited
    ? "No candidates: ask again, or write a reply."
    : "Say something as the user for new candidates.";
}

/** Why there are no candidates. */
export function noCandidates(pool) {
  return session.selective
    ? `The pool “${pool}” has no candidates that match the filters and were not said.`
    : `The pool “${pool}” has no candidates.`;
}

function facts(answer, turns) {
  if (!answer) return "";
  const pool = answer.pool ? `${answer.pool.name}, version ${answer.pool.version}; ` : "";
  const took = `${pool}${milliseconds(answer.timings_ms.total)}`;
  return answer.turn < turns.length ? `${took}; before the last turn` : took;
}

function item(candidate, scores) {
  const { id, text, score, metadata, group, matched, body } = candidate;
  const tags = Object.values(metadata ?? {})
    .filter((value) => typeof value === "string")
    .slice(0, 3);
  const select = h(
    "button.reply",
    {
      type: "button",
      "data-id": id,
      "aria-keyshortcuts": "Enter E",
      onclick: () => session.select(id),
      onfocus: () => session.select(id),
    },
    h("span.text", { dir: "auto" }, text),
    h(
      "span.tags",
      {},
      group ? h("span", { dir: "auto" }, `group ${group}`) : null,
      ...tags.map((tag) => h("span", { dir: "auto" }, tag)),
    ),
    matched ? matchOf(matched) : null,
    body ? h("small.body.soft", { dir: "auto" }, body) : null,
  );
  return h(
    isRejected(id) ? "li.rejected" : "li",
    { vars: { share: shareOf(score, scores) } },
    select,
    h("span.bar", { "aria-hidden": "true" }),
    h(
      "span.score",
      { title: `score ${score}` },
      h("span.hidden-visually", {}, "score "),
      decimals(score),
    ),
    h(
      "span.deeds",
      {},
      h(
        "button",
        {
          type: "button",
          "data-reject": "",
          "aria-label": `Reject: ${text}`,
          disabled: session.busy || !offered() || isRejected(id),
          onclick: () => reject(candidate),
        },
        "Reject",
      ),
      h(
        "button",
        { type: "button", "aria-label": `Edit: ${text}`, onclick: () => write(candidate) },
        "Edit",
      ),
      h(
        "button.primary",
        {
          type: "button",
          "data-use": "",
          "aria-label": `Use: ${text}`,
          disabled: session.busy || !session.current,
          onclick: () => use(candidate),
        },
        "Use",
      ),
    ),
  );
}

/**
 * The length of the bar of a score, from 0 to 1. Bars show differences: the best score has the whole
 * length, and the lowest none if it is far enough below.
 * @param {number} score
 * @param {number[]} scores Those that are shown together.
 */
export function shareOf(score, scores) {
  const best = Math.max(...scores);
  const range = Math.max(best - Math.min(...scores), LEAST_RANGE * Math.abs(best), 1e-9);
  return 1 - (best - score) / range;
}

/** The example that found a candidate, and the reply that it follows. */
export const matchOf = ({ example, learned, after }) =>
  h(
    "small.matched.soft",
    {},
    example || learned ? "matched " : null,
    example ? h("q", { dir: "auto" }, example) : null,
    learned && !example ? "a learned example" : null,
    (example || learned) && after ? ", " : null,
    after ? `follows ${after}` : null,
  );

function mark() {
  for (const reply of list.querySelectorAll(".reply")) {
    const selected = reply.dataset.id === session.selected;
    reply.setAttribute("aria-pressed", String(selected));
    reply.closest("li").classList.toggle("selected", selected);
  }
}

function keys(event) {
  const reply = event.target.closest(".reply");
  if (!reply || event.altKey || event.ctrlKey || event.metaKey) return;
  const candidate = session.candidates.find(({ id }) => id === reply.dataset.id);
  const replies = [...list.querySelectorAll(".reply")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && replies.indexOf(reply) + step < 0) byId("say").focus();
  else if (step) replies[replies.indexOf(reply) + step]?.focus();
  else if (event.key === "Escape") byId("say").focus();
  else if (event.key === "Enter" && session.current && !event.repeat)
    use(candidate);
  else if (event.key.toLowerCase() === "e") write(candidate);
  else if (event.key !== "Enter") return;
  event.preventDefault();
}

/** What a stage is called, if it is more than its name says. */
const STAGES = { rerank: "re-rank, explain" };

/** The stages of the answer as one bar. */
function timings(stages) {
  if (!stages) return [];
  const parts = Object.entries(stages).filter(([stage, ms]) => stage !== "total" && ms >= 0.05);
  const bar = h(
    "span.stages",
    { "aria-hidden": "true" },
    ...parts.map(([stage, ms]) => h(`span.${stage}`, { vars: { ms: String(ms) } })),
  );
  const words = parts.map(([stage, ms]) =>
    h("span.legend", {}, h(`i.${stage}`), `${STAGES[stage] ?? stage} ${milliseconds(ms)}`),
  );
  return [bar, ...words];
}
