/** Requests the score matrix of the best candidates, and has it drawn (`score_matrix.js`). */

import { call, path } from "./api.js";
import { session } from "./session.js";
import { byId, empty } from "./dom.js";
import { COLOURS, clearLines, drawLines, light } from "./score_matrix.js";
import { attempt } from "./notices.js";

const ANSWERED = 6;

let asked = "";

export function startScores() {
  session.addEventListener("change", () => attempt(update));
  session.addEventListener("select", () => light(null));
  new ResizeObserver(() => drawLines()).observe(byId("scores"));
}

async function update() {
  const { name, settings, turns, busy } = session;
  if (busy) return;
  const ids = wanted();
  const question = JSON.stringify([
    name,
    settings,
    turns.length,
    session.answer?.pool,
    ids,
  ]);
  if (question === asked) return;
  asked = question;
  if (!turns.length || !ids.length) return say("The score matrix appears with the first candidates.");
  if (!session.explain) return say("The pairwise model has no score matrix.");
  const found = await read(name, ids);
  if (question !== asked) return;
  if (!found?.scores.length) return say("None of these candidates is in the pool any more.");
  drawLines(found);
}

/** The candidates of the answer, and those of earlier answers that were among the best. */
function wanted() {
  const shown = session.candidates.map(({ id }) => id).filter(Boolean);
  return [
    ...new Set([...shown.slice(0, ANSWERED), ...[...session.seen.keys()].reverse()]),
  ].slice(0, COLOURS);
}

async function read(name, ids) {
  const { pool } = session.settings;
  const query = [["pool", pool], ...ids.map((id) => ["ids", id])];
  for (const [name, value] of Object.entries(session.aggregated))
    query.push([name, String(value)]);
  try {
    return await call("GET", `${path("sessions", name)}/scores`, { query });
  } catch (error) {
    if (error.kind === "session-not-found") return null;
    if (error.kind !== "candidate-not-found") throw error;
    const rest = session.candidates.map(({ id }) => id);
    session.forget(ids.filter((id) => !rest.includes(id)));
    return rest.length && rest.length < ids.length ? read(name, rest) : null;
  }
}

function say(words) {
  clearLines();
  byId("scores").replaceChildren(empty(words));
}
