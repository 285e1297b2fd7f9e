/** What becomes of the candidates that a turn offered: they are chosen, edited or rejected. */

import { call, path } from "./api.js";
import { announce, byId } from "./dom.js";
import { attempt } from "./notices.js";
import { session } from "./session.js";

/** @type {Set<string>} */
const rejected = new Set();

export function startFeedback() {
  session.addEventListener("replied", (event) => replied(/** @type {any} */ (event).detail));
}

/** Whether a turn offered the shown candidates; a ranking of the console's own is not an offer. */
export const offered = () => Boolean(session.answer?.candidates && session.current);

export const isRejected = (id) => rejected.has(key(id));

export async function reject({ id, text }) {
  if (!(await attempt(async () => Boolean(await give(id, "rejected"))))) return;
  rejected.add(key(id));
  announce(`Rejected: ${text}`);
  session.dispatchEvent(new Event("change"));
}

/** The responder said something: a candidate as it is, an edited one, or words of its own. */
function replied({ text, candidate }) {
  const offer = session.answer?.candidates ?? [];
  const from = offer.find(({ id }) => id === candidate) ?? offer.find((each) => each.text === text);
  if (!from) return;
  const event = from.text === text ? "chosen" : "edited";
  attempt(async () => {
    const { learned } = await give(from.id, event, event === "edited" ? text : undefined);
    if (learned) announce("The pool learned an example.");
  });
}

function give(candidate, event, text) {
  const where = `${path("sessions", session.name, "turns", String(session.answer.turn))}/feedback`;
  const learn = (event !== "rejected" && byId("learn").checked) || undefined;
  return call("POST", where, { body: { candidate, event, text, learn }, repeatable: true });
}

const key = (id) => `${session.name} ${session.answer?.turn} ${id}`;
