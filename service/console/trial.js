/** A trial: what a pool would answer to one message, why, and from which confidence on. */

import { call, path } from "./api.js";
import { browse, browsedFilter, browsedPool } from "./browse.js";
import { openCandidate } from "./candidate_form.js";
import { matchOf, shareOf } from "./candidates.js";
import { announce, byId, decimals, empty, h } from "./dom.js";
import { filtered } from "./filters.js";
import { attempt, submitted } from "./notices.js";
import { infoOf, refreshPools } from "./pools.js";

const FOUND = 8;

/** The confidence of the last trial; null if there is none. */
let confidence = null;

export function startTrial() {
  submitted("search-form", () => filtered(byId("search-where"), tryMessage));
  byId("threshold-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(saveThreshold);
  });
  byId("threshold").addEventListener("input", judge);
  for (const event of ["browsed", "pools"]) window.addEventListener(event, showThreshold);
}

const message = () => byId("search-text").value.trim();

async function tryMessage() {
  const pool = browsedPool();
  const where = browsedFilter();
  const context = [{ speaker: "user", text: message() }];
  const body = { context, pool, where, top_k: FOUND };
  const answer = await call("POST", "rank", { body, repeatable: true });
  const scores = answer.ranking.map(({ score }) => score);
  byId("found").replaceChildren(...answer.ranking.map((each) => hit(pool, each, scores)));
  const none = `The pool “${pool}” has no candidates${where ? " that match the filter" : ""}.`;
  if (!scores.length) byId("found").append(h("li", {}, empty(none)));
  confidence = answer.confidence;
  judge();
  announce(`${scores.length} found`);
}

function hit(pool, { id, text, score, group, matched }, scores) {
  const again = async () => {
    await browse();
    await tryMessage();
  };
  const teach = { type: "button", "aria-label": `Add what the user says to the examples of: ${text}` };
  const edit = { type: "button", "aria-label": `Change the candidate: ${text}` };
  return h(
    "li",
    { vars: { share: shareOf(score, scores) } },
    h("span.score", { title: `score ${score}` }, decimals(score)),
    h(
      "span.why",
      {},
      h("span.text", { dir: "auto" }, text),
      h("span.bar", { "aria-hidden": "true" }),
      matched ? matchOf(matched) : h("small.soft", {}, "by its text"),
      h("small.soft", {}, id, group ? `, group ${group}` : ""),
    ),
    h(
      "span.deeds",
      {},
      h(
        "button",
        { ...teach, onclick: () => openCandidate(pool, id, again, message()) },
        "Add example",
      ),
      h("button", { ...edit, onclick: () => openCandidate(pool, id, again) }, "Change"),
    ),
  );
}

/** Show the threshold of the browsed pool. */
function showThreshold() {
  byId("threshold").value = String(infoOf(browsedPool())?.min_confidence ?? 0);
  confidence = byId("found").children.length ? confidence : null;
  judge();
}

/** Say whether a turn would offer what the trial found. */
function judge() {
  const least = Number(byId("threshold").value);
  const saved = infoOf(browsedPool())?.min_confidence ?? 0;
  byId("threshold-words").textContent = least ? decimals(least, 2) : "never";
  byId("threshold-save").disabled = least === saved;
  byId("verdict").textContent = verdict(least);
}

function verdict(least) {
  if (confidence === null) {
    return byId("found").children.length ? "This pool or its model has no confidence." : "";
  }
  const words = `Confidence ${decimals(confidence, 2)}: `;
  return confidence < least
    ? `${words}a turn would offer nothing, so that the bot can ask back or hand over.`
    : `${words}a turn would offer these candidates.`;
}

async function saveThreshold() {
  const least = Number(byId("threshold").value);
  const body = { min_confidence: least || null };
  await call("PUT", path("pools", browsedPool()), { body, repeatable: true });
  announce("Threshold saved");
  await refreshPools();
}
