/**
 * Client of Turnwise, for Node 20 and browsers. It has no dependencies.
 *
 *     const session = new Turnwise("http://127.0.0.1:8000").session("ada");
 *     const { candidates } = await session.turn("user", "Is breakfast included?");
 *
 * A call that fails rejects with a `TurnwiseError`: `ProblemError` if the service rejects the
 * request, `UnreachableError` if no usable answer comes. Calls that are safe to send twice are sent
 * again until the deadline; a turn is, since it has an idempotency key.
 */

import type { components } from "./schema.js";

type Schemas = components["schemas"];
type Reranker = "ioi" | "cross_encoder";
type WithReranker<Request> = Omit<Request, "rerank"> & { rerank?: Reranker };

export type Candidate = {
  id?: string;
  text: string;
  /** Returned with it. `after` names the replies that it follows, by their ids or groups. */
  metadata?: Record<string, unknown>;
  /** Utterances of another speaker after which it fits; 32 at most. */
  examples?: readonly string[];
  /** The answer that it is a wording of. */
  group?: string;
  /** A longer text, 16 KB at most, which is returned with it and not encoded. */
  body?: string;
};
export type Avoided = Schemas["Avoided"];
export type CandidateChange = Schemas["CandidateChange"];
export type CandidatePage = Schemas["CandidatePage"];
export type Edited = Schemas["Edited"];
export type Feedback = Schemas["Feedback"];
export type Filter = Schemas["Filter"];
export type Goal = Schemas["Goal"];
export type LearnedExample = Schemas["LearnedExample"];
export type Matched = Schemas["Matched"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type PlanGoal = Schemas["PlanGoal"];
export type PoolCandidate = Schemas["PoolCandidate"];
export type PoolInfo = Schemas["PoolInfo"];
export type Problem = Schemas["Problem"];
export type RankAnswer = Schemas["RankAnswer"];
export type Removed = Schemas["Removed"];
export type RerankAnswer = Schemas["RerankAnswer"];
export type ScoreMatrix = Schemas["ScoreMatrix"];
export type Selected = Schemas["Selected"];
export type SessionsDeleted = Schemas["SessionsDeleted"];
export type SessionsPage = Schemas["SessionsPage"];
export type Transcript = Schemas["Transcript"];
export type TurnAnswer = Schemas["TurnAnswer"];
export type Undone = Schemas["Undone"];
export type Unlearned = Schemas["Unlearned"];
export type Version = Schemas["Version"];

export type TurnOptions = Omit<WithReranker<Schemas["TurnRequest"]>, "speaker" | "text"> & {
  /** If you retry a turn yourself, pass the same key each time. */
  idempotencyKey?: string;
};
export type RankOptions = Omit<WithReranker<Schemas["RankRequest"]>, "session_id">;
export type PlanOptions = Omit<Schemas["PlanRequest"], "session_id">;
export type ScoresOptions = {
  pool?: string;
  aggregation?: "mean" | "last_rows" | "max_sim";
  last_rows?: number;
  top_k?: number;
};

export interface Settings {
  /** The secret of an API key. */
  key?: string;
  /** The namespace of the calls, for a key with the scope `admin`. */
  namespace?: string;
  /** Milliseconds of one attempt; 30,000 by default. */
  timeout?: number;
  /**
   * Milliseconds of all attempts of a call, with the pauses between them; 30,000 by default. While
   * no connection is possible, the client tries for a second.
   */
  deadline?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Any error of a call. */
export class TurnwiseError extends Error {
  override name = "TurnwiseError";
}

/** There is no connection, no answer in time, or an answer of another server. */
export class UnreachableError extends TurnwiseError {
  override name = "UnreachableError";

  /** Whether there was no connection at all, so that a retry soon helps little. */
  get refused(): boolean {
    const { cause } = this;
    const reason = cause instanceof Error ? cause.cause : undefined;
    return reason instanceof Error && "code" in reason && NO_CONNECTION.has(String(reason.code));
  }
}

/** The answer comes from another server, or from a proxy before the service. */
export class UnexpectedAnswerError extends UnreachableError {
  override name = "UnexpectedAnswerError";
  readonly status: number;
  /** Seconds to wait before a retry, if the answer names them. */
  readonly retryAfter: number | undefined;

  constructor(url: string, status: number, retryAfter?: number) {
    super(`${url} answered ${status}, but not as Turnwise does: is the URL right?`);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** The service answered with a problem document (RFC 9457). */
export class ProblemError extends TurnwiseError {
  override name = "ProblemError";
  readonly problem: Problem;
  /** Seconds to wait before a retry, if the service names them. */
  readonly retryAfter: number | undefined;

  constructor(problem: Problem, retryAfter?: number) {
    super(`${problem.title}: ${problem.detail}`);
    this.problem = problem;
    this.retryAfter = retryAfter;
  }

  get status(): number {
    return this.problem.status;
  }

  /** The end of the problem's type, such as `turn-conflict`. */
  get kind(): string {
    return this.problem.type.slice(this.problem.type.lastIndexOf(":") + 1);
  }
}

type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

interface Call {
  body?: unknown;
  query?: Query;
  headers?: Record<string, string>;
  /** Whether it may be sent again although it may have arrived; true by default. */
  repeatable?: boolean;
  /** Whether 404 means success if an earlier attempt may have done the work. */
  deletes?: boolean;
}

const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 5_000;
const LONGEST_DEADLINE = 30_000;
/** Milliseconds of retries while no connection is possible: a wrong URL should not take the deadline. */
const LONGEST_REFUSAL = 1_000;
const NO_CONNECTION = new Set(["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN"]);
const OF_PROXIES = new Set([429, 502, 503, 504]);

export class Turnwise {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #deadline: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, settings: Settings = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = { Accept: "application/json" };
    if (settings.key !== undefined) this.#headers["Authorization"] = `Bearer ${settings.key}`;
    if (settings.namespace !== undefined) this.#headers["Turnwise-Namespace"] = settings.namespace;
    this.#timeout = settings.timeout ?? LONGEST_DEADLINE;
    this.#deadline = settings.deadline ?? LONGEST_DEADLINE;
    this.#fetch = settings.fetch ?? fetch;
  }

  /** Return a session; its first turn creates it. */
  session(id: string): Session {
    return new Session(this, id);
  }

  /** Return a pool, which need not exist yet. */
  pool(name: string): Pool {
    return new Pool(this, name);
  }

  /** Return the pools, sorted by name. */
  async pools(): Promise<PoolInfo[]> {
    return (await this.call<Schemas["PoolList"]>("GET", "/pools")).pools;
  }

  /** Rank given candidates or those of a pool, by context or toward goals. */
  rank(options: RankOptions): Promise<RankAnswer> {
    return this.call("POST", "/rank", { body: options });
  }

  /** Rank documents after a query: by the cross-encoder, or without one by the encoder. */
  rerank(
    query: string,
    documents: readonly string[],
    options: { top_n?: number; return_documents?: boolean } = {},
  ): Promise<RerankAnswer> {
    return this.call("POST", "/v1/rerank", { body: { query, documents, ...options } });
  }

  /** Put goals into the order in which a dialogue can reach them. */
  plan(options: PlanOptions): Promise<PlanAnswer> {
    return this.call("POST", "/plan", { body: options });
  }

  /** Return a page of the ids of sessions, in no order; needs the scope `admin`. */
  sessions(page: { prefix?: string; cursor?: string } = {}): Promise<SessionsPage> {
    return this.call("GET", "/sessions", { query: page });
  }

  /**
   * Delete some of the sessions whose ids begin with a prefix; go on with the cursor. With `learned`
   * the last call also removes what candidates have learned from such sessions.
   */
  deleteSessions(prefix: string, cursor?: string, learned?: boolean): Promise<SessionsDeleted> {
    return this.call("DELETE", "/sessions", { query: { prefix, cursor, learned } });
  }

  /** Return the version, the model and the limits of the service. */
  version(): Promise<Version> {
    return this.call("GET", "/version");
  }

  /** Send a request, again after errors that pass, and return the JSON of the answer. */
  async call<Answer>(method: string, path: string, call: Call = {}): Promise<Answer> {
    const end = Date.now() + this.#deadline;
    let unsure = false;
    let refusedSince: number | undefined;
    for (let failed = 0; ; failed += 1) {
      try {
        return await this.#attempt<Answer>(method, path, call, end - Date.now());
      } catch (error) {
        if (unsure && call.deletes && error instanceof ProblemError && error.status === 404) {
          return undefined as Answer;
        }
        unsure ||= !(error instanceof ProblemError && error.status === 429);
        const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** failed);
        const answered = error instanceof ProblemError || error instanceof UnexpectedAnswerError;
        const asked = 1000 * ((answered && error.retryAfter) || 0);
        const pause = Math.max(asked, longest * (0.5 + Math.random() / 2));
        const isRefused = error instanceof UnreachableError && error.refused;
        refusedSince = isRefused ? (refusedSince ?? Date.now()) : undefined;
        const last = refusedSince === undefined ? end : Math.min(end, refusedSince + LONGEST_REFUSAL);
        if (!mayRepeat(error, call.repeatable ?? true) || Date.now() + pause >= last) throw error;
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  async #attempt<Answer>(method: string, path: string, call: Call, left: number): Promise<Answer> {
    const headers = { ...this.#headers, ...call.headers };
    const request: RequestInit = {
      method,
      headers,
      signal: AbortSignal.timeout(Math.max(1, Math.min(this.#timeout, left))),
    };
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(call.body);
    }
    const where = `${this.#url}${path}${encoded(call.query)}`;
    let response: Response;
    let text: string;
    try {
      response = await this.#fetch(where, request);
      text = await response.text();
    } catch (error) {
      throw new UnreachableError(`${this.#url} did not answer: ${reason(error)}`, { cause: error });
    }
    const kind = response.headers.get("Content-Type") ?? "";
    if (response.ok && text === "") return undefined as Answer;
    const retryAfter = seconds(response.headers.get("Retry-After"));
    const value = kind.startsWith("application/") ? parsed(text) : undefined;
    if (response.ok && kind.startsWith("application/json") && value !== undefined) return value as Answer;
    if (kind.startsWith("application/problem+json") && value !== undefined) {
      throw new ProblemError(value as Problem, retryAfter);
    }
    throw new UnexpectedAnswerError(this.#url, response.status, retryAfter);
  }
}

/** One conversation. */
export class Session {
  readonly id: string;
  readonly #service: Turnwise;

  constructor(service: Turnwise, id: string) {
    this.#service = service;
    this.id = id;
  }

  /**
   * Post a turn and return the best candidates. Retries do not post it twice. The text may be null
   * if the responder's turn names its `candidate`.
   */
  turn(speaker: string, text: string | null, options: TurnOptions = {}): Promise<TurnAnswer> {
    const { idempotencyKey = crypto.randomUUID(), ...rest } = options;
    const headers = { "Idempotency-Key": idempotencyKey };
    return this.#call("POST", "/turn", { body: { speaker, text, ...rest }, headers });
  }

  /** Rank given candidates or those of a pool, after this session or toward goals. */
  rank(options: Omit<RankOptions, "context">): Promise<RankAnswer> {
    return this.#service.call("POST", "/rank", { body: { session_id: this.id, ...options } });
  }

  /** Put goals into the order in which this conversation can reach them. */
  plan(options: Omit<PlanOptions, "context">): Promise<PlanAnswer> {
    return this.#service.call("POST", "/plan", { body: { session_id: this.id, ...options } });
  }

  /** Return the score matrix: a row for each utterance, a column for each candidate. Without ids,
   * the columns are the best candidates of the pool. */
  scores(ids: readonly string[] = [], options: ScoresOptions = {}): Promise<ScoreMatrix> {
    return this.#call("GET", "/scores", { query: { ids, ...options } });
  }

  /** Set the responder before the first turn, unless it is "bot" or "assistant", or the filter. */
  open(settings: Schemas["SessionRequest"]): Promise<Transcript> {
    return this.#call("PUT", "", { body: settings });
  }

  /** Return the turns with their speakers, and when the session expires. */
  transcript(): Promise<Transcript> {
    return this.#call("GET", "");
  }

  /** Say what became of a candidate of that turn's answer; once more changes nothing. */
  feedback(turn: number, feedback: Schemas["FeedbackRequest"]): Promise<Feedback> {
    return this.#call("POST", `/turns/${turn}/feedback`, { body: feedback });
  }

  /** Undo the last turn. There is no retry that might undo two. */
  undo(): Promise<Undone> {
    return this.#call("DELETE", "/turns/last", { repeatable: false });
  }

  /** Delete the session. */
  delete(): Promise<void> {
    return this.#call("DELETE", "", { deletes: true });
  }

  #call<Answer>(method: string, path: string, call: Call = {}): Promise<Answer> {
    return this.#service.call(method, `/sessions/${segment(this.id)}${path}`, call);
  }
}

/** A named set of candidates. */
export class Pool {
  readonly name: string;
  readonly #service: Turnwise;

  constructor(service: Turnwise, name: string) {
    this.#service = service;
    this.name = name;
  }

  /** Create the pool, or change the description of one that exists. */
  create(options: Schemas["PoolRequest"] = {}): Promise<PoolInfo> {
    return this.#call("PUT", "", { body: options });
  }

  /** Return its version, size and index, and whether it is ready. */
  info(): Promise<PoolInfo> {
    return this.#call("GET", "");
  }

  /**
   * Add candidates, and replace those of the same ids, in one new version. The service encodes them
   * before it answers: set `timeout` and `deadline` for it, or send a thousand at once.
   */
  upsert(candidates: readonly Candidate[]): Promise<Edited> {
    return this.#call("PUT", "/candidates", { body: candidates });
  }

  /**
   * Return a page of the candidates that match, sorted by id. `q` is a part of the text, of an
   * example or of the id; go on with the cursor.
   */
  candidates(
    query: { q?: string; where?: Filter; limit?: number; cursor?: string } = {},
  ): Promise<CandidatePage> {
    const where = query.where && JSON.stringify(query.where);
    return this.#call("GET", "/candidates", { query: { ...query, where } });
  }

  /** Return one candidate, with its examples and those that it has learned. */
  candidate(id: string): Promise<PoolCandidate> {
    return this.#call("GET", `/candidates/${encodeURIComponent(id)}`);
  }

  /** Change some fields of one candidate; fields that are left out stay as they are. */
  change(id: string, change: CandidateChange): Promise<Edited> {
    return this.#call("PATCH", `/candidates/${encodeURIComponent(id)}`, { body: change });
  }

  /** Delete candidates in one new version; ids that the pool lacks are only counted. */
  remove(ids: readonly string[]): Promise<Removed> {
    return this.#call("POST", "/candidates/delete", { body: { ids } });
  }

  /** Return the best candidates with a text as the whole context. */
  async search(
    text: string,
    options: { top_k?: number; where?: Filter; slots?: Record<string, string> } = {},
  ): Promise<Selected[]> {
    const body = { text, ...options };
    const found = await this.#call<Schemas["SearchAnswer"]>("POST", "/search", { body });
    return found.candidates;
  }

  /** Return what the pool, or one candidate, has learned from feedback, newest first. */
  async learned(candidate?: string): Promise<LearnedExample[]> {
    const query = { candidate };
    return (await this.#call<Schemas["LearnedList"]>("GET", "/learned", { query })).learned;
  }

  /** Remove the learned example with a text, or all that a candidate has learned. */
  unlearn(candidate: string, text?: string): Promise<Unlearned> {
    return this.#call("DELETE", "/learned", { query: { candidate, text } });
  }

  /** Make this name an alias of a pool, or move the alias to another pool; return the pool. */
  pointTo(pool: string, expected?: string): Promise<PoolInfo> {
    return this.#call("PUT", "/alias", { body: { to: pool, expected } });
  }

  /** Delete the alias of this name, and not its pool. */
  deleteAlias(): Promise<void> {
    return this.#call("DELETE", "/alias", { deletes: true });
  }

  /** Delete the pool and all its candidates. */
  delete(): Promise<void> {
    return this.#call("DELETE", "", { deletes: true });
  }

  #call<Answer>(method: string, path: string, call: Call = {}): Promise<Answer> {
    return this.#service.call(method, `/pools/${segment(this.name)}${path}`, call);
  }
}

/** Escape an id or a name for a path; `.` and `..` cannot be escaped, as every URL resolves them. */
function segment(name: string): string {
  if (name === "." || name === "..") throw new RangeError(`"${name}" cannot be a part of a path`);
  return encodeURIComponent(name);
}

function mayRepeat(error: unknown, repeatable: boolean): boolean {
  if (error instanceof ProblemError) {
    return error.status === 429 || (error.status === 503 && repeatable);
  }
  if (error instanceof UnexpectedAnswerError) return repeatable && OF_PROXIES.has(error.status);
  return repeatable && error instanceof UnreachableError;
}

function encoded(query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    const values = Array.isArray(value) ? value : [value];
    for (const one of values) if (one !== undefined) parameters.append(name, String(one));
  }
  const text = parameters.toString();
  return text && `?${text}`;
}

/** Return the value of JSON; undefined if it is none. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Return the seconds until `Retry-After`, which may be a number or a date. */
function seconds(retryAfter: string | null): number | undefined {
  if (retryAfter === null) return undefined;
  const value = /^\d+$/.test(retryAfter)
    ? Number(retryAfter)
    : Math.max(0, (Date.parse(retryAfter) - Date.now()) / 1000);
  return Number.isNaN(value) ? undefined : value;
}

/** Return why a fetch failed: Node names it in the cause. */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause;
  return cause instanceof Error && cause.message ? cause.message : error.message;
}
