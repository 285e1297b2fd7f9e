/** What becomes of the candidates that a turn offered: they are chosen, edited or rejected. */

import { call, path } from "./api.js";
import { write } from "./chat.js";
import { announce } from "./dom.js";
import { attempt } from "./notices.js";
import { session } from "./session.js";

/** The candidate that is being edited, and the turn that offered it. */
let edited = null;
/** @type {Set<string>} */
const rejected = new Set();

export function startFeedback() {
  session.addEventListener("replied", (event) => replied(/** @type {any} */ (event).detail));
}

/** Whether a turn offered the shown candidates; a ranking of the console's own is no offer. */
export const offered = () => Boolean(session.answer?.candidates && session.current);

export const isRejected = (id) => rejected.has(key(id));

/** Put a candidate into the message field. */
export function edit({ id, text }) {
  edited = offered() ? { id, key: key(id) } : null;
  write(text);
}

export async function reject({ id, text }) {
  if (!(await attempt(async () => Boolean(await give(id, "rejected"))))) return;
  rejected.add(key(id));
  announce(`Rejected: ${text}`);
  session.dispatchEvent(new Event("change"));
}

/** The responder has said something: a candidate as it is, what was made of one, or its own words. */
function replied(text) {
  if (!session.answer?.candidates) return;
  const chosen = session.answer.candidates.find((candidate) => candidate.text === text);
  const from = edited;
  edited = null;
  if (chosen) attempt(() => give(chosen.id, "chosen"));
  else if (from?.key === key(from?.id)) attempt(() => give(from.id, "edited", text));
}

function give(candidate, event, text) {
  const where = `${path("sessions", session.name, "turns", String(session.answer.turn))}/feedback`;
  return call("POST", where, { body: { candidate, event, text }, repeatable: true });
}

const key = (id) => `${session.name} ${session.answer?.turn} ${id}`;
