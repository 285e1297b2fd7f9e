/** Fields that take a filter as JSON. */

import { ApiError } from "./api.js";
import { right, wrong } from "./notices.js";

/** Return the filter in a field; null if the field is empty. */
export function filterIn(field) {
  const text = field.value.trim();
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    const words = 'This is not JSON. A filter looks like {"topic": "delivery"}.';
    throw new ApiError(words, { field: "where" });
  }
}

/** Show a filter in a field, unless somebody edits it or it is wrong. */
export function showFilter(field, where) {
  if (document.activeElement === field || field.ariaInvalid) return;
  field.value = where ? JSON.stringify(where) : "";
}

/** Run work, and show at a field what is wrong with its filter. */
export async function filtered(field, work) {
  right(field);
  try {
    return await work();
  } catch (error) {
    if (error?.field !== "where") throw error;
    wrong(field, error.message);
    return undefined;
  }
}
