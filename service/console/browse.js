/** The candidates of a pool, page by page: search, filter, and open one to change it. */

import { call, path } from "./api.js";
import { openCandidate } from "./candidate_form.js";
import { byId, debounced, empty, h, thousands } from "./dom.js";
import { filterIn, filtered } from "./filters.js";
import { FilterMenus } from "./menus.js";
import { attempt } from "./notices.js";
import { session } from "./session.js";

const PAGE = 20;

const menus = new FilterMenus(byId("menus"), byId("search-where"));

/** @type {string[]} The cursor of each page from the first to the shown one; "" is the first. */
let cursors = [""];
let next = null;
let asked = 0;

export function startBrowse() {
  byId("browse-form").addEventListener("submit", (event) => event.preventDefault());
  byId("browse-pool").addEventListener("change", () => {
    menus.clear();
    byId("browse-words").value = "";
    byId("found").replaceChildren();
    window.dispatchEvent(new Event("browsed"));
    begin();
  });
  byId("browse-words").addEventListener("input", debounced(begin));
  byId("search-where").addEventListener("change", begin);
  byId("page-back").addEventListener("click", () => turn(cursors.slice(0, -1)));
  byId("page-next").addEventListener("click", () => turn([...cursors, next]));
  byId("add-candidate").addEventListener("click", () => openCandidate(browsedPool(), null, browse));
}

/** Browse another pool, as if somebody had chosen it. */
export function browsePool(name) {
  if (name === browsedPool()) return;
  byId("browse-pool").value = name;
  byId("browse-pool").dispatchEvent(new Event("change"));
}

/** The pool that is browsed; before the list of pools arrives, that of the session. */
export const browsedPool = () => byId("browse-pool").value || session.settings.pool;

/** The filter, which also holds for a trial. */
export const browsedFilter = () => filterIn(byId("search-where"));

const begin = () => turn([""]);

function turn(pages) {
  cursors = pages;
  return attempt(browse);
}

/** Read the shown page again, and the menus if the pool has changed. */
export async function browse() {
  const number = ++asked;
  const pool = browsedPool();
  const found = await filtered(byId("search-where"), () => read(pool));
  if (number !== asked || !found) return;
  if (!found.candidates.length && cursors.length > 1) return turn(cursors.slice(0, -1));
  next = found.cursor;
  draw(pool, found);
  await menus.read(pool);
}

/** Read a page; a page of a candidate store may be empty although others follow. */
async function read(pool) {
  const words = byId("browse-words").value.trim();
  const where = browsedFilter();
  const fixed = [["limit", String(PAGE)]];
  if (words) fixed.push(["q", words]);
  if (where) fixed.push(["where", JSON.stringify(where)]);
  let cursor = cursors.at(-1);
  for (;;) {
    const query = [...fixed, ...(cursor ? [["cursor", cursor]] : [])];
    const found = await call("GET", path("pools", pool, "candidates"), { query });
    if (found.candidates.length || found.cursor === null) return found;
    cursor = found.cursor;
  }
}

function draw(pool, { candidates, matching }) {
  const first = (cursors.length - 1) * PAGE + 1;
  const range = `${thousands(first)} to ${thousands(first + candidates.length - 1)}`;
  const total = matching === null ? "" : ` of ${thousands(matching)}`;
  byId("browse-facts").textContent = candidates.length ? `${range}${total}` : "";
  byId("browsed").replaceChildren(...candidates.map((candidate) => row(pool, candidate)));
  if (!candidates.length) byId("browsed").append(h("li", {}, empty(nothing(pool))));
  byId("page-back").disabled = cursors.length === 1;
  byId("page-next").disabled = next === null;
}

function nothing(pool) {
  const narrowed = byId("browse-words").value.trim() || byId("search-where").value;
  return narrowed
    ? "No candidate matches. Change the search or the filters."
    : `The pool “${pool}” has no candidates. Add one, or upload a file below.`;
}

function row(pool, candidate) {
  const { id, text, group, metadata, examples, learned } = candidate;
  const tags = Object.values(metadata).filter((value) => typeof value === "string");
  const facts = [
    id,
    group && `group ${group}`,
    counted(examples.length, "example"),
    learned?.length ? `${learned.length} learned` : "",
  ];
  return h(
    "li",
    {},
    h(
      "button.candidate",
      { type: "button", "data-id": id, onclick: () => openCandidate(pool, id, browse) },
      h("span.text", { dir: "auto" }, text),
      h("small.soft", {}, facts.filter(Boolean).join(" · ")),
      h("span.tags", {}, ...tags.slice(0, 3).map((tag) => h("span", { dir: "auto" }, tag))),
    ),
  );
}

const counted = (count, noun) => (count ? `${count} ${noun}${count > 1 ? "s" : ""}` : "");
