// Runs against the service at TURNWISE_URL:
//   TURNWISE_URL=http://127.0.0.1:8000 npm test
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";

import { ProblemError, Turnwise, UnexpectedAnswerError, UnreachableError } from "../src/index.ts";

const url = process.env["TURNWISE_URL"] ?? "http://127.0.0.1:8000";
const service = new Turnwise(url);
const name = (): string => `ts-${randomUUID()}`;

const pool = service.pool(name());
await pool.create({ description: "Replies of a hotel" });
await pool.upsert([
  { id: "moved", text: "Sure, I have moved your stay to Saturday.", metadata: { topic: "stay" } },
  { id: "swim", text: "Our pool opens at seven.", metadata: { topic: "spa" } },
  { id: "thanks", text: "You are welcome!", examples: ["Thanks a lot!"], group: "thanks" },
]);
test.after(() => pool.delete());

test("a session selects, explains, ranks, plans and undoes", async () => {
  const session = service.session(name());
  const options = { pool: pool.name, explain: true, idempotencyKey: "k" };
  const answer = await session.turn("user", "Could I arrive on Saturday?", options);
  assert.equal(answer.turn, 1);
  assert.equal(answer.candidates.length, 3);
  assert.equal(answer.candidates[0]?.contributions?.length, 1);
  assert.equal((await session.turn("user", "Could I arrive on Saturday?", options)).replayed, true);
  const rank = answer.candidates.findIndex((one) => one.id !== "thanks") + 1; // it has no example yet
  const given = { candidate: answer.candidates[rank - 1]!.id, event: "chosen", learn: true } as const;
  const feedback = await session.feedback(1, given);
  assert.deepEqual([feedback.rank, feedback.learned], [rank, true]);
  const [learned] = await pool.learned(given.candidate);
  assert.equal(learned?.text, "Could I arrive on Saturday?");
  assert.equal((await pool.unlearn(given.candidate, learned?.text)).removed, 1);
  const preview = await session.turn("user", "I will pay in", { pool: pool.name, commit: false });
  assert.equal(preview.turn, null);
  await session.turn("bot", null, { candidate: "moved", pool: pool.name });
  assert.equal((await session.transcript()).transcript[1]?.text, "Sure, I have moved your stay to Saturday.");
  assert.equal((await session.undo()).turn, 1);
  const narrow = { pool: pool.name, where: { topic: "spa" }, wordings: "all" } as const;
  const spa = await session.turn("user", "Is it warm?", narrow);
  assert.deepEqual(spa.candidates.map((one) => one.id), ["swim"]);
  const goals = [{ text: "Great, thank you so much!", speaker: "user" }];
  const ranked = await session.rank({ pool: pool.name, goals });
  assert.equal(ranked.ranking.length, 3);
  const plan = await session.plan({ goals: [{ id: "a", text: "Yes?" }, { id: "b", text: "Bye!" }] });
  assert.equal(plan.orders[0]?.order.length, 2);
  const matrix = await session.scores(["swim", "moved"], { pool: pool.name });
  assert.equal(matrix.scores[0]?.length, 2);
  assert.equal((await session.undo()).turn, 1);
  assert.equal((await session.transcript()).turns, 1);
  await session.delete();
  await assert.rejects(session.transcript(), { name: "ProblemError", kind: "session-not-found" });
});

test("the id of a session may be that of a channel", async () => {
  for (const id of ["whatsapp:+15550100", "19:abc@thread.v2", `${name()}/ü %2F`]) {
    const session = service.session(id);
    assert.equal((await session.turn("user", "Hello", { pool: pool.name })).session_id, id);
    assert.equal((await session.transcript()).turns, 1);
    await session.delete();
  }
  assert.throws(() => service.session("..").undo(), RangeError);
});

test("a pool is listed, searched, aliased and shortened", async () => {
  assert.ok((await service.pools()).some((one) => one.name === pool.name));
  const [best] = await pool.search("When can I swim?", { top_k: 1, where: { topic: "spa" } });
  assert.equal(best?.id, "swim");
  const [thanks] = (await pool.candidates({ q: "WELCOME", limit: 1 })).candidates;
  assert.deepEqual([thanks?.id, thanks?.group], ["thanks", "thanks"]);
  const page = await pool.candidates({ where: { topic: "spa" } });
  assert.deepEqual([page.matching, page.candidates[0]?.id], [1, "swim"]);
  assert.equal((await pool.change("swim", { text: "Our pool opens at eight." })).upserted, 1);
  assert.equal((await pool.candidate("swim")).text, "Our pool opens at eight.");
  const alias = service.pool(name());
  assert.equal((await alias.pointTo(pool.name)).name, pool.name);
  assert.equal((await alias.info()).size, 3);
  await alias.deleteAlias();
  const removed = await pool.remove(["thanks", "nobody"]);
  assert.deepEqual([removed.removed, removed.missing], [1, 1]);
  assert.equal((await pool.info()).size, 2);
});

test("documents are ranked, and the service says what it is", async () => {
  const { results } = await service.rerank("Is breakfast included?", ["No.", "Yes."], { top_n: 1 });
  assert.equal(results.length, 1);
  assert.ok((await service.version()).limits["max_top_k"]);
  const context = [{ speaker: "user", text: "Hello" }];
  const { ranking } = await service.rank({ context, candidates: ["Hi!", { text: "Bye." }] });
  assert.equal(ranking.length, 2);
});

test("a request that the service rejects names the field", async () => {
  const asked = service.session(name()).turn("user", "Hello", { top_k: 0 });
  await assert.rejects(asked, (error: unknown) => {
    assert.ok(error instanceof ProblemError);
    assert.equal(error.status, 422);
    assert.deepEqual(error.problem.errors?.[0]?.loc, ["body", "top_k"]);
    return true;
  });
});

/** A `fetch` that gives these answers, one after the other; the last one again and again. */
function answers(...given: (Response | Error)[]): { fetch: typeof fetch; sent: Request[] } {
  const sent: Request[] = [];
  const answer: typeof fetch = async (input, init) => {
    sent.push(new Request(input, init));
    const next = given[Math.min(sent.length, given.length) - 1];
    if (next instanceof Response) return next.clone();
    throw next;
  };
  return { fetch: answer, sent };
}

function problem(status: number, wait?: string): Response {
  const body = { type: "urn:turnwise:problem:some", title: "Some", status, detail: "why", errors: [] };
  const headers = { "Content-Type": "application/problem+json", ...(wait && { "Retry-After": wait }) };
  return new Response(JSON.stringify(body), { status, headers });
}

const done = Response.json({ turn: 1 });
const lost = new TypeError("fetch failed", { cause: new Error("connect ECONNREFUSED") });

test("a turn is sent again, with the same key, until it is answered", async () => {
  const { fetch, sent } = answers(problem(503), lost, problem(429), done);
  const session = new Turnwise(url, { fetch, key: "secret" }).session("s");
  assert.equal((await session.turn("user", "Hello")).turn, 1);
  assert.equal(new Set(sent.map((one) => one.headers.get("Idempotency-Key"))).size, 1);
  assert.equal(sent.length, 4);
  assert.equal(sent[0]?.headers.get("Authorization"), "Bearer secret");
});

test("an undo is sent again only if it certainly changed nothing", async () => {
  const busy = answers(problem(429), done);
  await new Turnwise(url, { fetch: busy.fetch }).session("s").undo();
  assert.equal(busy.sent.length, 2);
  const broken = answers(lost);
  const undo = new Turnwise(url, { fetch: broken.fetch }).session("s").undo();
  await assert.rejects(undo, UnreachableError);
  await assert.rejects(undo, /did not answer: connect ECONNREFUSED/);
  assert.equal(broken.sent.length, 1);
});

/** A port on which nothing listens. */
async function closedPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

test("the client gives up after a second if nothing listens", async () => {
  const began = Date.now();
  const version = new Turnwise(`http://127.0.0.1:${await closedPort()}`).version();
  await assert.rejects(version, { name: "UnreachableError", refused: true });
  assert.ok(Date.now() - began < 10_000);
});

test("a deletion whose first answer was lost succeeds if the session is gone", async () => {
  const { fetch } = answers(lost, problem(404));
  assert.equal(await new Turnwise(url, { fetch }).session("s").delete(), undefined);
  const rejected = answers(problem(429), problem(404));
  const deleted = new Turnwise(url, { fetch: rejected.fetch }).session("s").delete();
  await assert.rejects(deleted, { name: "ProblemError", status: 404 });
});

test("a proxy's 429 is sent again when it asks for that, also by a date", async () => {
  const soon = new Date(Date.now() + 2000).toUTCString();
  const busy = new Response("Wait.", { status: 429, headers: { "Retry-After": soon } });
  const { fetch, sent } = answers(busy, done);
  const began = Date.now();
  assert.equal((await new Turnwise(url, { fetch }).session("s").turn("user", "Hello")).turn, 1);
  assert.equal(sent.length, 2);
  assert.ok(Date.now() - began > 500);
});

test("the deadline ends the attempts, and a later one that the service asks for is not waited for", async () => {
  const { fetch, sent } = answers(problem(503, "60"));
  await assert.rejects(new Turnwise(url, { fetch }).version(), ProblemError);
  assert.equal(sent.length, 1);
  const late = answers(problem(503));
  await assert.rejects(new Turnwise(url, { fetch: late.fetch, deadline: 300 }).version(), ProblemError);
  assert.ok(late.sent.length > 1);
});

test("another server is noticed", async () => {
  const { fetch } = answers(new Response("<h1>Hello</h1>", { headers: { "Content-Type": "text/html" } }));
  await assert.rejects(new Turnwise(url, { fetch }).version(), UnexpectedAnswerError);
  const cut = answers(new Response("{", { headers: { "Content-Type": "application/json" } }));
  await assert.rejects(new Turnwise(url, { fetch: cut.fetch }).version(), UnexpectedAnswerError);
});
