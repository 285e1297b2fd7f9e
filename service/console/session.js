/** The open session, without its presentation.
 *
 * Every turn is posted with its expected number and an idempotency key, which a retry repeats. So
 * neither a double click nor a lost answer adds a turn twice.
 */

import { ApiError, call, path, unique } from "./api.js";

/**
 * @typedef {{speaker: string, text: string, turn: number}} Turn
 * @typedef {{id: string, text: string, score: number, metadata?: object, group?: string,
 *   matched?: {example?: string, learned?: boolean, after?: string}, contributions?: number[]}} Candidate
 * @typedef {{pool: string, aggregation: string, lastRows: number, topK: number,
 *   where: object | null, repeat: boolean | "last" | "near", wordings: "best" | "all",
 *   diversity: number, least: number}} Settings
 */

const STORED = "turnwise.session";
const REMEMBERED = 10;
const ON_TOP = 3;

class Session extends EventTarget {
  name = unusedName();
  responder = "bot";
  /** @type {Turn[]} */
  turns = [];
  /** @type {Candidate[]} Best first. */
  candidates = [];
  /** The answer that the candidates came with, and its turn. */
  answer = null;
  /** @type {string | null} Id of the selected candidate. */
  selected = null;
  /** @type {Settings} */
  settings = {
    pool: "default",
    aggregation: "",
    lastRows: 2,
    topK: 6,
    where: null,
    repeat: "last",
    wordings: "best",
    diversity: 0,
    least: 0,
  };
  /** @type {object | null} The filter that the session carries. */
  where = null;
  /** @type {Set<string>} Pools whose scores have no contributions. */
  unexplained = new Set();
  /** @type {Map<string, string>} Candidates that were among the best, the newest last. */
  seen = new Map();
  busy = false;

  /** Whether this tab had the session open before the page was loaded. */
  #reopened = false;
  #unsent = null;
  #asked = 0;
  #open = () => {};
  #opened = new Promise((resolve) => (this.#open = () => resolve(null)));

  /** Go on with the session that this tab had open, or with a new one. Nothing is read yet. */
  constructor() {
    super();
    const stored = JSON.parse(sessionStorage.getItem(STORED) ?? "{}");
    if (!stored.name) return;
    Object.assign(this.settings, stored.settings);
    Object.assign(this, { name: stored.name, seen: new Map(stored.seen) });
    this.#reopened = true;
  }

  /** Consecutive turns of one speaker are one utterance. @returns {Turn[][]} */
  get utterances() {
    return utterances(this.turns);
  }

  /** Whether the candidates follow the last turn. */
  get current() {
    return this.answer?.turn === this.turns.length;
  }

  /** Whether the responder speaks next. */
  get awaited() {
    return this.turns.length > 0 && this.turns.at(-1).speaker !== this.responder;
  }

  /** Whether scores of the pool can be explained. */
  get explain() {
    return !this.unexplained.has(this.settings.pool);
  }

  /** The aggregation, as fields of a request. */
  get aggregated() {
    const { aggregation, lastRows } = this.settings;
    if (!aggregation) return {};
    return aggregation === "last_rows" ? { aggregation, last_rows: lastRows } : { aggregation };
  }

  /** Which candidates may be offered, as fields of a request. */
  get offered() {
    const { where, repeat, wordings, diversity } = this.settings;
    return { where, repeat, wordings, diversity };
  }

  /** Whether candidates of the pool may be left out. */
  get selective() {
    const said = this.turns.some(({ speaker }) => speaker === this.responder);
    return Boolean(this.where || this.settings.where || (said && this.settings.repeat !== true));
  }

  /** Read the session if this tab had it open before. Changes wait for this. */
  async resume() {
    try {
      if (this.#reopened) await this.refresh();
      else this.#changed();
    } finally {
      this.#open();
    }
  }

  /** Open a session by its name; a new one begins with its first turn. */
  async open(name) {
    this.#become(name);
    await this.refresh();
  }

  /** Begin a session with an unused name. */
  begin() {
    this.#become(unusedName());
    this.#changed();
  }

  #become(name) {
    Object.assign(this, { name, responder: "bot", where: null, seen: new Map(), turns: [] });
    this.#unsent = null;
    this.#answered([], null);
  }

  /** Read the session again, and rank for it if the responder speaks next. */
  async refresh() {
    this.#changed();
    await this.#read();
    this.#changed();
    if (this.awaited) await this.rank();
  }

  /** Change the settings, and select again. @param {Partial<Settings>} changes */
  async choose(changes) {
    if (changes.pool && changes.pool !== this.settings.pool) this.seen.clear();
    if ("where" in changes && JSON.stringify(changes.where) !== JSON.stringify(this.settings.where))
      this.seen.clear();
    Object.assign(this.settings, changes);
    this.#changed();
    if (this.awaited) await this.rank();
  }

  /** Let the session carry a filter from now on; null removes it. */
  async carry(where) {
    await this.#opened;
    const name = this.name;
    const body = { where };
    const found = await call("PUT", path("sessions", name), { body, repeatable: true });
    if (name !== this.name) return;
    this.where = found.where;
    this.seen.clear();
    this.#changed();
    if (this.awaited) await this.rank();
  }

  /**
   * Post a turn. After a turn of the responder the last candidates stay visible.
   * @param {string} speaker @param {string} text
   * @param {string} [candidate] Id of the candidate that the responder says, as it is or edited.
   */
  say(speaker, text, candidate) {
    return this.#alone(async () => {
      const attempt = this.#attempt(speaker, text, candidate);
      const where = `${path("sessions", this.name)}/turn`;
      const answer = await this.#orStanding(() =>
        call("POST", where, {
          body: attempt.body,
          idempotencyKey: attempt.key,
          waiting: (words) => this.dispatchEvent(new CustomEvent("waiting", { detail: words })),
        }),
      );
      this.#unsent = null;
      this.turns = [...this.turns, { speaker, text, turn: answer.turn }];
      if (speaker === this.responder) {
        if (answer.turn === this.answer?.turn + 1)
          this.dispatchEvent(new CustomEvent("replied", { detail: { text, candidate } }));
        return;
      }
      this.selected = null;
      this.#answered(answer.candidates, answer);
    });
  }

  /** Return what a turn of the user would answer; nothing is kept. @param {AbortSignal} signal */
  preview(text, signal) {
    const { pool, least } = this.settings;
    const body = { speaker: "user", text, commit: false, pool, top_k: 1, ...this.offered };
    if (least) Object.assign(body, { min_confidence: least });
    const where = `${path("sessions", this.name)}/turn`;
    return call("POST", where, { body: { ...body, ...this.aggregated }, signal });
  }

  /** Undo the last turn. There is no retry: although its answer was lost, an undo may have happened. */
  undo() {
    return this.#alone(async () => {
      const undone = await this.#orStanding(() =>
        call("DELETE", `${path("sessions", this.name)}/turns/last`),
      );
      this.turns = this.turns.slice(0, undone.turn);
      this.#changed();
      if (this.awaited) await this.rank();
      else this.#answered([], null);
    });
  }

  /** Rank the pool after the context of the session, with contributions; this changes nothing. */
  async rank() {
    const asked = ++this.#asked;
    const { explain, name: session_id } = this;
    const { pool, topK: top_k } = this.settings;
    const body = { session_id, pool, top_k, explain, ...this.offered, ...this.aggregated };
    const turn = this.turns.length;
    const answer = await call("POST", "rank", { body, repeatable: true });
    if (asked !== this.#asked || turn !== this.turns.length) return;
    this.#answered(answer.ranking, { ...answer, turn });
    this.#changed();
  }

  /** Select a candidate. */
  select(id) {
    if (id === this.selected) return;
    this.selected = id;
    this.dispatchEvent(new Event("select"));
  }

  /** Forget candidates that no longer exist. */
  forget(ids) {
    for (const id of ids) this.seen.delete(id);
  }

  /** Return the attempt that was not acknowledged, if it is the same request, or a new one. */
  #attempt(speaker, text, candidate) {
    const { pool, topK, least } = this.settings;
    const expected = this.turns.length + 1;
    const fields = { pool, top_k: topK, explain: this.explain, expected_turn: expected };
    const body = { speaker, text, candidate, ...fields, ...this.offered, ...this.aggregated };
    if (least) Object.assign(body, { min_confidence: least });
    if (JSON.stringify(body) !== JSON.stringify(this.#unsent?.body))
      this.#unsent = { key: unique(), body };
    return this.#unsent;
  }

  /**
   * Run one change at a time, and skip others, such as double clicks. Returns whether it ran.
   * While the page still loads, the change waits: the turns are not known yet.
   */
  async #alone(work) {
    await this.#opened;
    if (this.busy) return false;
    this.busy = true;
    this.#changed();
    try {
      await work();
      return true;
    } finally {
      this.busy = false;
      this.#changed();
    }
  }

  /** If the session differs from what is shown, read it again before the error is raised. */
  async #orStanding(work) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof ApiError && (error.status === 409 || error.status === 404)) {
        await this.#read().catch(() => {});
      }
      throw error;
    }
  }

  async #read() {
    const name = this.name;
    try {
      const found = await call("GET", path("sessions", name));
      if (name !== this.name) return;
      this.responder = found.responder;
      this.where = found.where;
      this.turns = found.transcript;
      this.#arrived();
    } catch (error) {
      if (error.kind !== "session-not-found") throw error;
      if (name === this.name) Object.assign(this, { responder: "bot", where: null, turns: [] });
    }
    if (!this.current) this.#answered([], null);
  }

  /** Drop the unsent turn if the session has it after all. */
  #arrived() {
    const body = this.#unsent?.body;
    const turn = body && this.turns[body.expected_turn - 1];
    if (!turn || turn.text !== body.text || turn.speaker !== body.speaker) return;
    this.#unsent = null;
    this.dispatchEvent(new CustomEvent("arrived", { detail: body.text }));
  }

  #answered(candidates, answer) {
    this.candidates = candidates;
    this.answer = answer;
    for (const { id, text } of candidates.slice(0, ON_TOP).reverse()) {
      this.seen.delete(id);
      this.seen.set(id, text);
    }
    for (const id of [...this.seen.keys()].slice(0, -REMEMBERED)) this.seen.delete(id);
    if (!candidates.some(({ id }) => id === this.selected))
      this.selected = candidates[0]?.id ?? null;
  }

  #changed() {
    const { name, settings, seen } = this;
    sessionStorage.setItem(STORED, JSON.stringify({ name, settings, seen: [...seen] }));
    this.dispatchEvent(new Event("change"));
  }
}

const unusedName = () => `console-${unique(4)}`;

/** @param {Turn[]} turns */
export function utterances(turns) {
  const runs = [];
  for (const turn of turns) {
    if (runs.at(-1)?.[0].speaker === turn.speaker) runs.at(-1).push(turn);
    else runs.push([turn]);
  }
  return runs;
}

export const session = new Session();
