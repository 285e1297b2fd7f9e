/** The form of one candidate: change it, add one, delete it, and forget what it has learned. */

import { ApiError, call, path } from "./api.js";
import { announce, byId, h } from "./dom.js";
import { confirmed } from "./notices.js";

const dialog = byId("candidate-dialog");

/** The pool, the candidate as it was read or null for a new one, and what to do afterwards. */
let opened = { pool: "", before: null, done: async () => {} };

/** The values that fields were filled with: inputs drop line breaks, text areas rewrite them. */
const originals = new WeakMap();

export function startCandidateForm() {
  byId("candidate-form").addEventListener("submit", (event) => {
    event.preventDefault();
    finish(save);
  });
  byId("candidate-cancel").addEventListener("click", () => dialog.close());
  byId("candidate-delete").addEventListener("click", () => finish(remove));
  byId("add-example").addEventListener("click", () => addExample("").focus());
  byId("add-field").addEventListener("click", () => addField("", "").focus());
}

/**
 * Show a candidate as the pool has it now.
 * @param {string} pool
 * @param {string | null} id null: a new candidate
 * @param {() => Promise<any>} done Called after a change.
 * @param {string} [example] An example to propose.
 */
export async function openCandidate(pool, id, done, example = "") {
  const before = id === null ? null : await call("GET", path("pools", pool, "candidates", id));
  opened = { pool, before, done };
  byId("candidate-title").textContent = before ? "Candidate" : "New candidate";
  fill(byId("candidate-text"), before?.text ?? "");
  byId("candidate-id").value = before?.id ?? "";
  byId("candidate-id").disabled = before !== null;
  fill(byId("candidate-group"), before?.group ?? "");
  fill(byId("candidate-body"), before?.body ?? "");
  byId("candidate-examples").replaceChildren();
  byId("candidate-metadata").replaceChildren();
  byId("candidate-learned").replaceChildren(...(before?.learned ?? []).map(learned));
  byId("learned-box").hidden = !before?.learned?.length;
  byId("candidate-delete").hidden = !before;
  byId("candidate-wrong").textContent = "";
  for (const text of before?.examples ?? []) addExample(text);
  if (example) addExample(example);
  for (const [name, value] of Object.entries(before?.metadata ?? {})) addField(name, shown(value));
  dialog.showModal();
  byId("candidate-text").focus();
}

function fill(field, text) {
  field.value = text;
  originals.set(field, { text, shown: field.value });
}

/** Return what a field was filled with, if nobody has changed it since. */
function untouched(field) {
  const original = originals.get(field);
  return original?.shown === field.value ? original.text : undefined;
}

const read = (field) => untouched(field) ?? field.value.trim();

function addExample(text) {
  const field = h("input", { "aria-label": "Example", dir: "auto", maxlength: "2000" });
  fill(field, text);
  byId("candidate-examples").append(h("li", {}, field, removal("example", text)));
  return field;
}

function addField(name, value) {
  const field = h("input.name", { "aria-label": "Field", placeholder: "topic" });
  const content = h("input", { "aria-label": "Value", dir: "auto", placeholder: "delivery" });
  fill(field, name);
  fill(content, value);
  byId("candidate-metadata").append(h("li", {}, field, content, removal("field", name)));
  return field;
}

function removal(kind, words) {
  const button = h(
    "button.quiet",
    { type: "button", "aria-label": `Remove the ${kind}: ${words}` },
    "×",
  );
  button.addEventListener("click", () => {
    button.parentNode.remove();
    byId(`add-${kind}`).focus();
  });
  return button;
}

function learned({ text, at }) {
  const day = new Date(at * 1000).toLocaleDateString("en", { dateStyle: "medium" });
  const forget = h("input", { type: "checkbox", "data-text": text });
  return h(
    "li",
    {},
    h("span.text", { dir: "auto" }, text, " ", h("small.soft", {}, day)),
    h("label", {}, forget, " forget"),
  );
}

/** A string is shown as it is, unless it could be read as another value. */
const shown = (value) =>
  typeof value === "string" && parsed(value) === value ? value : JSON.stringify(value);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function given() {
  const rows = [...byId("candidate-metadata").children].map((row) =>
    [...row.querySelectorAll("input")].map(read),
  );
  const examples = [...byId("candidate-examples").querySelectorAll("input")].map(read);
  const body = byId("candidate-body");
  return {
    text: read(byId("candidate-text")),
    group: read(byId("candidate-group")) || null,
    body: (untouched(body) ?? body.value) || null,
    examples: [...new Set(examples.filter(Boolean))],
    metadata: Object.fromEntries(
      rows.filter(([name]) => name).map(([name, value]) => [name, parsed(value)]),
    ),
  };
}

async function save() {
  const { pool, before } = opened;
  const fields = given();
  if (!before) return add(pool, fields);
  const where = path("pools", pool, "candidates", before.id);
  const body = changes(before, fields);
  const { warnings = [] } = Object.keys(body).length ? await call("PATCH", where, { body }) : {};
  for (const { dataset } of byId("candidate-learned").querySelectorAll("input:checked")) {
    const query = [
      ["candidate", before.id],
      ["text", dataset.text],
    ];
    await call("DELETE", path("pools", pool, "learned"), { query });
  }
  announce(["Candidate saved", ...warnings].join("; "));
  return true;
}

/** Examples are added and removed one by one: somebody else may add others at the same time. */
function changes(before, { examples, ...fields }) {
  const changed = Object.entries(fields).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name] ?? null),
  );
  const added = examples.filter((each) => !before.examples.includes(each));
  const removed = before.examples.filter((each) => !examples.includes(each));
  return {
    ...Object.fromEntries(changed),
    ...(added.length ? { add_examples: added } : {}),
    ...(removed.length ? { remove_examples: removed } : {}),
  };
}

async function add(pool, fields) {
  const id = byId("candidate-id").value.trim();
  await checkNew(pool, id, fields.text);
  const body = [id ? { ...fields, id } : fields];
  const { warnings } = await call("PUT", path("pools", pool, "candidates"), { body });
  announce(["Candidate added", ...warnings].join("; "));
  return true;
}

/** An upload would replace a candidate with the same id, which comes from the text if none is given. */
async function checkNew(pool, id, text) {
  const query = [
    ["q", id || text.slice(0, 200)],
    ["limit", "500"],
  ];
  const { candidates } = await call("GET", path("pools", pool, "candidates"), { query });
  const same = candidates.find((each) => (id ? each.id === id : each.text === text));
  if (same) throw new ApiError(`The pool has this ${id ? "id" : "text"} already: “${same.text}”`);
}

async function remove() {
  const { pool, before } = opened;
  if (!(await confirmed("Delete this candidate?", before.text))) return false;
  await call("DELETE", path("pools", pool, "candidates", before.id));
  announce("Candidate deleted");
  return true;
}

/** Run work, and close the form if it has changed something; an error stays beside the buttons. */
async function finish(work) {
  const buttons = dialog.querySelectorAll(".actions > button");
  for (const button of buttons) button.disabled = true;
  try {
    if (!(await work())) return;
    dialog.close();
    await opened.done();
  } catch (error) {
    byId("candidate-wrong").textContent = error.message;
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}
