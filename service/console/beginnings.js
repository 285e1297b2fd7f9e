/** First messages to propose: what users say to a pool, as its examples have it. */

import { call, path } from "./api.js";

const PAGE = 100;
const COUNT = 3;
const LONGEST = 90;
const GENERAL = ["Hello!", "Can you help me?", "I have a question."];

/** @type {Map<string, Promise<string[]>>} */
const known = new Map();
window.addEventListener("pools", () => known.clear());

/** Return messages for the beginning of a conversation; general ones if the pool has no examples. */
export function beginningsOf(pool) {
  if (!known.has(pool)) known.set(pool, read(pool));
  return /** @type {Promise<string[]>} */ (known.get(pool));
}

async function read(pool) {
  try {
    const query = [["limit", String(PAGE)]];
    const { candidates } = await call("GET", path("pools", pool, "candidates"), {
      query,
      repeatable: false,
    });
    const said = candidates.flatMap(({ examples }) => examples.slice(0, 1));
    const texts = said.filter((text) => text.length <= LONGEST).slice(0, COUNT);
    return texts.length ? texts : GENERAL;
  } catch {
    return GENERAL; // no such pool, no key or no service; the next list of pools clears this
  }
}
