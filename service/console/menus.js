/** Menus that write a filter: one for each field of a pool's metadata, with its values. */

import { call, path } from "./api.js";
import { h, thousands } from "./dom.js";
import { filterIn, filtered } from "./filters.js";
import { attempt } from "./notices.js";

const PAGE = 500;
const MOST_PAGES = 10;
const MOST_FIELDS = 8;
const MOST_VALUES = 200;
const RESERVED = ["any", "all", "none"];

/** @type {Map<string, {version: number, found: Promise<any>}>} What was read last of each pool. */
const known = new Map();

/** Menus beside a field with a filter as JSON. They show what the field has, and write into it. */
export class FilterMenus {
  #element;
  #field;
  #shown = null;
  #pool = "";

  /** @param {HTMLElement} element Gets the menus. @param {HTMLInputElement} field */
  constructor(element, field) {
    this.#element = element;
    this.#field = field;
    element.addEventListener("change", (event) => {
      event.stopPropagation();
      attempt(() => filtered(field, async () => this.#write(event.target)));
    });
    field.addEventListener("change", () => this.show());
  }

  /** Draw the menus of a pool; its metadata are read once a version. */
  async read(pool) {
    this.#pool = pool;
    const { version } = await call("GET", path("pools", pool));
    const found = await readOnce(pool, version);
    if (pool !== this.#pool) return;
    if (found !== this.#shown) this.#element.replaceChildren(...draw(found));
    this.#shown = found;
    this.show();
  }

  /** Remove the menus and the filter of another pool. */
  clear() {
    this.#shown = null;
    this.#element.replaceChildren();
    this.#field.value = "";
  }

  /** Choose in the menus what the field has. */
  show() {
    const where = this.#where() ?? {};
    for (const select of this.#element.querySelectorAll("select")) {
      const value = JSON.stringify(where[select.name]);
      const has = [...select.options].some((option) => option.value === value);
      select.value = has ? value : "";
    }
  }

  #write({ name, value }) {
    const { [name]: _, ...where } = filterIn(this.#field) ?? {};
    if (value) where[name] = JSON.parse(value);
    this.#field.value = Object.keys(where).length ? JSON.stringify(where) : "";
    this.#field.dispatchEvent(new Event("change", { bubbles: true }));
  }

  #where() {
    try {
      return filterIn(this.#field);
    } catch {
      return null;
    }
  }
}

/** Return the fields of the metadata of a version of a pool; a failure is tried again. */
function readOnce(pool, version) {
  const before = known.get(pool);
  if (before?.version === version) return before.found;
  const found = readMetadata(pool);
  known.set(pool, { version, found });
  found.catch(() => known.delete(pool));
  return found;
}

/** Return the number of candidates with each value of each field, and whether all were read. */
async function readMetadata(pool) {
  const fields = new Map();
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page++) {
    const query = [["limit", String(PAGE)], ...(cursor ? [["cursor", cursor]] : [])];
    const found = await call("GET", path("pools", pool, "candidates"), { query });
    for (const { metadata } of found.candidates) count(fields, metadata, "");
    cursor = found.cursor;
    if (cursor === null) break;
  }
  return { fields, isWhole: cursor === null };
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

function draw({ fields, isWhole }) {
  const short = [...fields].filter(([, values]) => values.size <= MOST_VALUES);
  const menus = short.slice(0, MOST_FIELDS).map(([name, values]) => menu(name, values));
  const notes = [];
  if (!isWhole)
    notes.push(
      `The menus have the fields and values of the first ${thousands(PAGE * MOST_PAGES)} candidates, not of the whole pool.`,
    );
  const without = [...fields.keys()].filter((name) => !menus.some((each) => each.name === name));
  if (without.length)
    notes.push(`Without a menu, but possible as JSON: ${without.slice(0, MOST_FIELDS).join(", ")}.`);
  const note = notes.length ? [h("small.soft", {}, notes.join(" "))] : [];
  return [...menus.map(({ label }) => label), ...note];
}

function menu(name, values) {
  const options = [...values]
    .sort(([, one], [, other]) => other - one)
    .map(([key, times]) => h("option", { value: key }, `${asText(key)} (${thousands(times)})`));
  const select = h("select", { name }, h("option", { value: "" }, "any"), ...options);
  return { name, label: h("label", {}, name, " ", select) };
}

const asText = (key) => (key.startsWith('"') ? JSON.parse(key) : key);
