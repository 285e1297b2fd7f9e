/** Calls of the API: the API key, safe retries, and error messages. */

const BASE = new URL("../", import.meta.url);
const KEY = "turnwise.key";
const ATTEMPTS = 4;
const NDJSON = "application/x-ndjson";

const WORDS = {
  unauthenticated: "This service needs an API key that it knows.",
  forbidden: "This API key lacks the scope for that.",
  "session-not-found": "This session does not exist, or has expired.",
  "pool-not-found": "This pool does not exist.",
  "candidate-not-found": "A candidate is no longer in the pool.",
  "turn-conflict":
    "The session has new turns from elsewhere. Nothing was sent; the transcript is now up to date.",
  "session-full": "This session has reached its limit of turns. Begin a new one.",
  "feedback-full": "This session has reached its limit of feedback.",
  overloaded: "The service is overloaded. Try again shortly.",
  "state-unavailable": "The service cannot reach Redis. Nothing was changed.",
  "pool-not-ready": "This pool is still being encoded. Try again shortly.",
  "deadline-exceeded": "That took too long, so the service dropped it.",
  draining: "The service is stopping. Try again shortly.",
  "body-too-large": "The request is larger than the service accepts.",
  "body-too-slow": "The request arrived too slowly. Try again.",
  "encoder-failed": "The model failed on this text.",
  "internal-error": "The service failed because of a bug.",
};

/** The error of a call; its message is for users. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, kind?: string, retryAfter?: number, field?: string}} facts `status`
   *   0: no answer; `field`: the first wrong field of the request
   */
  constructor(message, { status = 0, kind = "unreachable", retryAfter = 0, field = "" } = {}) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.retryAfter = retryAfter;
    this.field = field;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Return a unique name for a session or an idempotency key. Works without HTTPS, too. */
export function unique(bytes = 16) {
  const random = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {...string} parts */
export const path = (...parts) => parts.map(encodeURIComponent).join("/");

/**
 * Call the API, and return the JSON of its answer.
 * @param {string} method
 * @param {string} where Path below the service's root.
 * @param {{body?: any, query?: [string, string][], idempotencyKey?: string, repeatable?: boolean,
 *   signal?: AbortSignal, waiting?: (words: string) => void}} options `repeatable`: a second call
 *   is safe, so the call is retried after a 429, a 503 or a lost answer.
 */
export async function call(method, where, options = {}) {
  const { idempotencyKey, repeatable = method === "GET" || Boolean(idempotencyKey) } = options;
  for (let attempt = 1; ; attempt++) {
    try {
      return await once(method, where, options);
    } catch (error) {
      const passing = error.status === 0 || error.retryAfter > 0;
      if (!(error instanceof ApiError) || !repeatable || !passing || attempt === ATTEMPTS)
        throw error;
      const seconds = error.retryAfter || attempt * 0.4;
      options.waiting?.(`${error.message} Trying again in ${Math.ceil(seconds)} s.`);
      await pause(seconds, options.signal);
    }
  }
}

/** Return the text of an answer that is not JSON. */
export async function text(where) {
  return (await reach("GET", where, {})).text();
}

/**
 * Upload a file of candidates to a pool; progress arrives line by line.
 * @param {string} pool
 * @param {File} file
 * @param {Record<string, string>} how Columns and encoding, where they are given.
 * @param {(encoded: number, total: number) => void} progress
 * @param {AbortSignal} signal
 */
export async function upload(pool, file, how, progress, signal) {
  const headers = { "Content-Type": "application/octet-stream", Accept: NDJSON };
  const where = `${path("pools", pool, "candidates")}?${new URLSearchParams({ file: file.name, ...how })}`;
  const answer = await reach("PUT", where, { headers, body: file, signal });
  for await (const event of events(answer, signal)) {
    if ("encoded" in event) progress(event.encoded, event.total);
    else if ("status" in event) throw problem(event, 0);
    else return event;
  }
  throw new ApiError("The connection closed before the service reported the result of the upload.");
}

async function once(method, where, { body, query, idempotencyKey, signal }) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  const target = query ? `${where}?${new URLSearchParams(query)}` : where;
  const answer = await reach(method, target, { headers, body: JSON.stringify(body), signal });
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch (error) {
    throw lost(error, signal);
  }
}

/** Fetch, and raise an error unless the answer is a success. */
async function reach(method, where, { headers = {}, body = undefined, signal = undefined }) {
  if (key.get()) headers["Authorization"] = `Bearer ${key.get()}`;
  let answer;
  try {
    const options = { method, headers, body, signal, cache: "no-store", credentials: "omit" };
    answer = await fetch(new URL(where, BASE), /** @type {RequestInit} */ (options));
  } catch (error) {
    throw lost(error, signal);
  }
  if (answer.ok) return answer;
  const document = await answer.json().catch(() => ({ title: `Status ${answer.status}` }));
  throw problem({ status: answer.status, ...document }, Number(answer.headers.get("Retry-After")));
}

/** @returns {AsyncGenerator<any>} */
async function* events(answer, signal) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw lost(error, signal);
    });
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
    if (done) return;
  }
}

function problem(document, retryAfter) {
  const kind = String(document.type ?? "").replace("urn:turnwise:problem:", "");
  const words = WORDS[kind] ?? `${document.title ?? "That did not work"}.`;
  const detail = kind in WORDS && kind !== "forbidden" ? "" : specifics(document);
  const { status } = document;
  if (status === 401) window.dispatchEvent(new Event("keyneeded"));
  const field = document.errors?.[0]?.loc[1];
  return new ApiError(`${words} ${detail}`.trim(), { status, kind, retryAfter, field });
}

/** Name the wrong fields: "candidate 4, text: should not be empty." */
function specifics({ detail = "", errors = [] }) {
  if (!errors.length) return detail && sentence(detail);
  const named = errors.slice(0, 3).map(({ loc, msg }) => `${field(loc)}${msg}`);
  const more = errors.length > 3 ? `; and ${errors.length - 3} more` : "";
  return sentence(named.join("; ") + more);
}

function field([, ...loc]) {
  const words = loc.map((part) => (typeof part === "number" ? `number ${part + 1}` : part));
  return words.length ? `${words.join(", ")}: ` : "";
}

/** Write words as a sentence; the name of a file in front keeps its case. */
function sentence(words) {
  const first = /^\S+\.\w/.test(words) ? words[0] : words[0].toUpperCase();
  return first + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");
}

function lost(error, signal) {
  if (signal?.aborted) return error;
  return new ApiError("The service cannot be reached. Is it running?");
}

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
