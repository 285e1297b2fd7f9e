/** What went wrong, in words, where everybody hears of it; and questions before a deed. */

import { byId, h } from "./dom.js";

const STAYS_MS = 12000;

/** Show an error until it is put away, or for a while. */
export function show(error) {
  if (error?.name === "AbortError") return;
  if (!error?.status && error?.kind !== "unreachable") console.error(error);
  const words = error?.message ?? String(error);
  for (const old of byId("problems").children) if (old.dataset.words === words) old.remove();
  const notice = h(
    "div.problem",
    { role: "alert", "data-words": words, "data-kind": error?.kind ?? "" },
    h("p", {}, words),
    h(
      "button.quiet",
      { type: "button", "aria-label": "Put away", onclick: () => notice.remove() },
      "×",
    ),
  );
  byId("problems").append(notice);
  setTimeout(() => notice.remove(), STAYS_MS);
}

/** Put away what no longer holds. */
export function settle(kind) {
  for (const notice of byId("problems").querySelectorAll(`[data-kind="${kind}"]`)) notice.remove();
}

/** Let work's errors be seen. Returns what it returns, or undefined. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    show(error);
    return undefined;
  }
}

/** Ask before something that cannot be undone. @returns {Promise<boolean>} */
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

/** Let a form work once at a time, and its errors be seen. */
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
