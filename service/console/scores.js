/** The score matrix of the candidates that are, or were, among the best. */

import { call, path } from "./api.js";
import { conversation } from "./conversation.js";
import { byId, empty } from "./dom.js";
import { COLOURS, clearLines, drawLines, light } from "./lines.js";
import { attempt } from "./notices.js";

const ANSWERED = 6;

let asked = "";

export function startScores() {
  conversation.addEventListener("change", () => attempt(update));
  conversation.addEventListener("select", () => light(null));
  new ResizeObserver(() => drawLines()).observe(byId("scores"));
}

async function update() {
  const { session, settings, posts, busy } = conversation;
  if (busy) return;
  const ids = wanted();
  const question = JSON.stringify([
    session,
    settings,
    posts.length,
    conversation.answer?.pool,
    ids,
  ]);
  if (question === asked) return;
  asked = question;
  if (!posts.length || !ids.length) return say("The score matrix appears with the first candidates.");
  if (settings.aggregation === "max_sim")
    return say("MaxSim has no score matrix: its scores are not sums of rows.");
  if (!conversation.explain) return say("The pairwise model has no score matrix.");
  const found = await read(session, ids);
  if (question !== asked) return;
  if (!found?.scores.length) return say("None of these candidates is in the pool any more.");
  drawLines(found);
}

/** The candidates of the answer, and those of earlier answers that were among the best. */
function wanted() {
  const shown = conversation.candidates.map(({ id }) => id).filter(Boolean);
  return [
    ...new Set([...shown.slice(0, ANSWERED), ...[...conversation.seen.keys()].reverse()]),
  ].slice(0, COLOURS);
}

async function read(session, ids) {
  const { pool } = conversation.settings;
  const query = [["pool", pool], ...ids.map((id) => ["ids", id])];
  for (const [name, value] of Object.entries(conversation.aggregated))
    query.push([name, String(value)]);
  try {
    return await call("GET", `${path("sessions", session)}/scores`, { query });
  } catch (error) {
    if (error.kind === "session-not-found") return null;
    if (error.kind !== "candidate-not-found") throw error;
    const rest = conversation.candidates.map(({ id }) => id);
    conversation.forget(ids.filter((id) => !rest.includes(id)));
    return rest.length && rest.length < ids.length ? read(session, rest) : null;
  }
}

function say(words) {
  clearLines();
  byId("scores").replaceChildren(empty(words));
}
