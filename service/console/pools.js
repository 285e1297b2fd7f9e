/** Pools: list them, choose one, delete one. */

import { call, path } from "./api.js";
import { session } from "./session.js";
import { announce, byId, decimals, empty, h, fileSize, setOptions, thousands } from "./dom.js";
import { browse, browsePool } from "./browse.js";
import { attempt, confirmed } from "./notices.js";

/** @type {Map<string, any>} The description of each pool, by its name and aliases. */
let infos = new Map();

export function startPools() {
  byId("pools-refresh").addEventListener("click", () => attempt(refreshPools));
}

/** The description of a pool; undefined before the list of pools arrives. */
export const infoOf = (name) => infos.get(name);

/** Read the list of pools again, and update every place that shows it. */
export async function refreshPools() {
  const { pools } = await call("GET", "pools");
  infos = new Map(pools.flatMap((info) => [info.name, ...info.aliases].map((name) => [name, info])));
  const names = [...infos.keys()].sort();
  const pairwise = pools.filter(({ encoder }) => encoder === "pairwise");
  session.unexplained = new Set(pairwise.flatMap(({ name, aliases }) => [name, ...aliases]));
  const chosen = session.settings.pool;
  setOptions(byId("pool"), names.includes(chosen) ? names : [chosen, ...names], chosen);
  setOptions(byId("browse-pool"), names, byId("browse-pool").value || chosen);
  byId("pool-names").replaceChildren(...names.map((value) => h("option", { value })));
  const total = pools.reduce((sum, { size }) => sum + size, 0);
  byId("pools-facts").textContent = pools.length
    ? `${thousands(total)} candidates in ${pools.length} pool${pools.length > 1 ? "s" : ""}`
    : "";
  byId("pool-list").replaceChildren(
    pools.length ? table(pools) : empty("No pool yet. Upload a file of candidates."),
  );
  window.dispatchEvent(new Event("pools"));
  byId("add-candidate").disabled = !pools.length;
  if (pools.length && document.body.dataset.view === "pools") await browse();
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
  browsePool(pool);
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
