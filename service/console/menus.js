/** Menus of a pool's metadata: one for each field, with the values that its candidates have. */

import { call, path } from "./api.js";
import { byId, h, thousands } from "./dom.js";

const PAGE = 500;
const MOST_PAGES = 10;
const MOST_FIELDS = 8;
const MOST_VALUES = 200;
const RESERVED = ["any", "all", "none"];

let reading = new AbortController();
let read = "";

/** Start the menus; `changed` is called when somebody chooses a value. */
export function startMenus(changed) {
  byId("menus").addEventListener("change", changed);
}

/** Remove the menus of another pool. */
export function clearMenus() {
  reading.abort();
  read = "";
  byId("menus").replaceChildren();
}

/** Return the filter that the menus choose; null if they choose nothing. */
export function menuFilter() {
  const chosen = [...byId("menus").querySelectorAll("select")].filter(({ value }) => value);
  if (!chosen.length) return null;
  return Object.fromEntries(chosen.map(({ name, value }) => [name, JSON.parse(value)]));
}

/** Read the metadata of a version of a pool, and draw the menus; choices that still exist stay. */
export async function readMenus(pool, version) {
  const asked = JSON.stringify([pool, version]);
  if (asked === read) return;
  read = asked;
  reading.abort();
  reading = new AbortController();
  const { signal } = reading;
  const fields = new Map();
  let cursor = null;
  let whole = false;
  try {
    for (let page = 0; page < MOST_PAGES && !whole; page++) {
      const query = [["limit", String(PAGE)], ...(cursor ? [["cursor", cursor]] : [])];
      const found = await call("GET", path("pools", pool, "candidates"), { query, signal });
      for (const { metadata } of found.candidates) count(fields, metadata, "");
      cursor = found.cursor;
      whole = cursor === null;
    }
    draw(fields, whole);
  } catch (error) {
    if (read === asked) read = ""; // so that the next page tries again
    throw error;
  }
}

/** Count the values of a JSON object by their paths, as filters name them. */
function count(fields, metadata, prefix) {
  for (const [name, value] of Object.entries(metadata)) {
    if (name.includes(".") || RESERVED.includes(name)) continue;
    for (const item of Array.isArray(value) ? value : [value]) {
      const field = `${prefix}${name}`;
      if (item !== null && typeof item === "object") {
        if (!Array.isArray(item)) count(fields, item, `${field}.`);
        continue;
      }
      if (!fields.has(field)) fields.set(field, new Map());
      const values = fields.get(field);
      const key = JSON.stringify(item);
      values.set(key, (values.get(key) ?? 0) + 1);
    }
  }
}

function draw(fields, whole) {
  const before = menuFilter() ?? {};
  const menus = [...fields]
    .filter(([, values]) => values.size <= MOST_VALUES)
    .slice(0, MOST_FIELDS)
    .map(([name, values]) => menu(name, values, JSON.stringify(before[name])));
  const seen = thousands(PAGE * MOST_PAGES);
  const partly = h("small.soft", {}, `Values of the first ${seen} candidates.`);
  byId("menus").replaceChildren(...menus, ...(menus.length && !whole ? [partly] : []));
}

function menu(name, values, chosen = "") {
  const options = [...values]
    .sort(([, one], [, other]) => other - one)
    .map(([key, times]) => h("option", { value: key }, `${asText(key)} (${thousands(times)})`));
  const select = h("select", { name }, h("option", { value: "" }, "any"), ...options);
  if (values.has(chosen)) select.value = chosen;
  return h("label", {}, name, " ", select);
}

const asText = (key) => (key.startsWith('"') ? JSON.parse(key) : key);
