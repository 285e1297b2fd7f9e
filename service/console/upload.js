/** Uploads a file of candidates as one version of a pool, and shows the progress. */

import { call, path, upload } from "./api.js";
import { browsePool } from "./browse.js";
import { announce, byId, h, fileSize, thousands } from "./dom.js";
import { submitted } from "./notices.js";
import { refreshPools } from "./pools.js";

let uploading = new AbortController();

export function startUpload() {
  submitted("upload-form", put);
  byId("upload-stop").addEventListener("click", () => uploading.abort());
  for (const kind of ["dragover", "dragleave", "drop"]) {
    byId("drop").addEventListener(kind, () =>
      byId("drop").classList.toggle("over", kind === "dragover"),
    );
  }
}

async function put() {
  const name = byId("upload-pool").value;
  const [file] = byId("upload-file").files;
  uploading = new AbortController();
  byId("upload-stop").hidden = byId("upload-progress").hidden = false;
  progress(`Sending ${fileSize(file.size)}`);
  let isNew = false;
  try {
    isNew = await create(name);
    const counted = (encoded, total) =>
      progress(`${thousands(encoded)} of ${thousands(total)} encoded`, encoded / total);
    const done = await upload(name, file, given(), counted, uploading.signal);
    const counts = `Version ${done.version}: ${thousands(done.upserted)} new or changed, ${thousands(done.unchanged)} unchanged; ${thousands(done.size)} in total`;
    progress([counts, ...done.notes, ...done.warnings].join(". "), 1);
    announce(byId("upload-words").textContent);
  } catch (error) {
    byId("upload-progress").hidden = !uploading.signal.aborted;
    if (uploading.signal.aborted) progress("Cancelled. The pool has not changed.", 0);
    byId("upload-columns").open ||= error.kind === "invalid-request";
    if (isNew && error.kind === "invalid-request") await call("DELETE", path("pools", name));
    throw error;
  } finally {
    byId("upload-stop").hidden = true;
    await refreshPools();
  }
  browsePool(name);
}

/** The columns and the encoding that the form names. */
function given() {
  const fields = ["text_column", "examples_column", "id_column", "encoding"].map((name) => [
    name,
    byId(`upload-${name.replace("_", "-")}`).value.trim(),
  ]);
  return Object.fromEntries(fields.filter(([, value]) => value));
}

/** Create a pool if there is none. @returns {Promise<boolean>} Whether there was none. */
async function create(name) {
  try {
    await call("GET", path("pools", name));
    return false;
  } catch (error) {
    if (error.kind !== "pool-not-found") throw error;
    await call("PUT", path("pools", name), { body: {}, repeatable: true });
    return true;
  }
}

/** @param {string} words @param {number | null} share null: running, with unknown progress */
function progress(words, share = null) {
  const bar = byId("upload-bar");
  if (share === null) bar.removeAttribute("value");
  else bar.value = share;
  byId("upload-words").textContent = words;
}
