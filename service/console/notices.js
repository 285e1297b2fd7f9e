/** Error messages, at their field where there is one, and questions before a deletion. */

import { byId, h } from "./dom.js";

const STAYS_MS = 12000;

/** Show an error at the setting that it is about; others for a while, or until dismissed. */
export function show(error) {
  if (error?.name === "AbortError") return;
  if (!error?.status && error?.kind !== "unreachable") console.error(error);
  const words = error?.message ?? String(error);
  const field = error?.field && byId("settings").elements.namedItem(error.field);
  if (field) return wrong(field, words);
  for (const old of byId("problems").children) if (old.dataset.words === words) old.remove();
  const notice = h(
    "div.problem",
    { role: "alert", "data-words": words, "data-kind": error?.kind ?? "" },
    h("p", {}, words),
    h(
      "button.quiet",
      { type: "button", "aria-label": "Dismiss", onclick: () => notice.remove() },
      "×",
    ),
  );
  byId("problems").append(notice);
  setTimeout(() => notice.remove(), STAYS_MS);
}

/** Show an error at its field until the field changes. */
export function wrong(field, words) {
  right(field);
  field.ariaInvalid = "true";
  for (let around = field.closest("details"); around; around = around.parentNode.closest("details"))
    around.open = true;
  field.after(h("small.wrong", { role: "alert" }, words));
  field.addEventListener("input", () => right(field), { once: true });
}

/** Remove the error of a field. */
export function right(field) {
  field.ariaInvalid = null;
  field.parentNode.querySelector(".wrong")?.remove();
}

/** Dismiss errors that no longer hold. */
export function settle(kind) {
  for (const notice of byId("problems").querySelectorAll(`[data-kind="${kind}"]`)) notice.remove();
}

/** Run work and show its errors. Returns its result, or undefined. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    show(error);
    return undefined;
  }
}

/** Ask before something that the user cannot undo. @returns {Promise<boolean>} */
export function confirmed(title, words) {
  const dialog = byId("confirm-dialog");
  byId("confirm-title").textContent = title;
  byId("confirm-words").textContent = words;
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Run work when a form is submitted, once at a time, and show its errors. */
export function submitted(form, work) {
  byId(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = byId(form).querySelector("[type=submit]");
    if (button.disabled) return;
    button.disabled = true;
    await attempt(work);
    button.disabled = false;
  });
}
