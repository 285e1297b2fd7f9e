/** Pools: list, search, delete. */

import { call, path } from "./api.js";
import { session } from "./session.js";
import { announce, byId, decimals, empty, h, fileSize, setOptions, thousands } from "./dom.js";
import { matchOf } from "./candidates.js";
import { filtered, filterIn } from "./filters.js";
import { attempt, confirmed, submitted } from "./notices.js";

export function startPools() {
  byId("pools-refresh").addEventListener("click", () => attempt(refreshPools));
  submitted("search-form", () => filtered(byId("search-where"), search));
}

/** Read the list of pools again, and update every place that shows it. */
export async function refreshPools() {
  const { pools } = await call("GET", "pools");
  const names = pools.flatMap(({ name, aliases }) => [name, ...aliases]).sort();
  const pairwise = pools.filter(({ encoder }) => encoder === "pairwise");
  session.unexplained = new Set(pairwise.flatMap(({ name, aliases }) => [name, ...aliases]));
  const chosen = session.settings.pool;
  setOptions(byId("pool"), names.includes(chosen) ? names : [chosen, ...names], chosen);
  setOptions(byId("search-pool"), names, byId("search-pool").value || chosen);
  byId("pool-names").replaceChildren(...names.map((value) => h("option", { value })));
  const total = pools.reduce((sum, { size }) => sum + size, 0);
  byId("pools-facts").textContent = pools.length
    ? `${thousands(total)} candidates in ${pools.length} pool${pools.length > 1 ? "s" : ""}`
    : "";
  byId("pools").replaceChildren(
    pools.length ? table(pools) : empty("No pool yet. Upload a file of candidates below."),
  );
}

function table(pools) {
  const heads = ["Pool", "Candidates", "Version", "Search", "State", "Memory", ""];
  return h(
    "table.plain",
    {},
    h("thead", {}, h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...pools.map(row)),
  );
}

function row({ name, aliases, description, size, version, exact, recall_at_10, state, bytes }) {
  const approximate = `approximate${recall_at_10 ? `, recall ${decimals(recall_at_10)}` : ""}`;
  const search = exact ? "exact" : approximate;
  const chosen = [name, ...aliases].includes(session.settings.pool);
  return h(
    "tr",
    {},
    h(
      "th",
      { scope: "row" },
      h("span.name", {}, name),
      aliases.length ? h("small.soft", {}, `alias ${aliases.join(", ")}`) : null,
      h("small.soft", { dir: "auto" }, description),
    ),
    h("td.number", {}, thousands(size)),
    h("td.number", {}, version),
    h("td", {}, state === "unread" ? "" : search),
    h("td", {}, h(`span.state.${state}`, {}, state.replaceAll("_", " "))),
    h("td.number", {}, fileSize(bytes)),
    h(
      "td.deeds",
      {},
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(chosen),
          "aria-label": `Use the pool ${name}`,
          onclick: () => attempt(() => choose(name)),
        },
        chosen ? "In use" : "Use",
      ),
      h(
        "button.danger",
        {
          type: "button",
          "aria-label": `Delete ${name}`,
          onclick: () => attempt(() => drop(name, size)),
        },
        "Delete",
      ),
    ),
  );
}

async function choose(pool) {
  await session.choose({ pool });
  await refreshPools();
}

async function drop(name, size) {
  const words = `This deletes its ${thousands(size)} candidates for every session. You cannot undo it.`;
  if (!(await confirmed(`Delete the pool “${name}”?`, words))) return;
  await call("DELETE", path("pools", name));
  announce(`${name} deleted`);
  byId("found").replaceChildren();
  await refreshPools();
  byId("pools-refresh").focus();
}

async function search() {
  const pool = byId("search-pool").value || session.settings.pool; // no list of pools yet
  const where = filterIn(byId("search-where"));
  const body = { text: byId("search-text").value, top_k: 10, where };
  const { candidates } = await call("POST", `${path("pools", pool)}/search`, {
    body,
    repeatable: true,
  });
  byId("found").replaceChildren(...candidates.map((candidate) => hit(pool, candidate)));
  const none = `The pool “${pool}” has no candidates${where ? " that match the filter" : ""}.`;
  if (!candidates.length) byId("found").append(h("li", {}, empty(none)));
  announce(`${candidates.length} found`);
}

function hit(pool, { id, text, score, group, matched }) {
  const line = h(
    "li",
    {},
    h("span.score", {}, decimals(score)),
    h(
      "span.text",
      { dir: "auto" },
      text,
      " ",
      h("small.soft", {}, id, group ? `, group ${group}` : ""),
      matched ? matchOf(matched) : null,
    ),
    h(
      "button.quiet.danger",
      {
        type: "button",
        "aria-label": `Delete the candidate: ${text}`,
        onclick: () => attempt(() => remove(pool, id, text, line)),
      },
      "Delete",
    ),
  );
  return line;
}

async function remove(pool, id, text, line) {
  if (!(await confirmed("Delete this candidate?", text))) return;
  await call("DELETE", path("pools", pool, "candidates", id));
  line.remove();
  announce("Candidate deleted");
  await refreshPools();
}
