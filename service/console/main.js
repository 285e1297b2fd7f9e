/** The frame: views, settings, the API key, and the health of the service. */

import { call, key } from "./api.js";
import { startBrowse } from "./browse.js";
import { startCandidateForm } from "./candidate_form.js";
import { startCandidates } from "./candidates.js";
import { startChat } from "./chat.js";
import { startConfidence } from "./confidence.js";
import { session } from "./session.js";
import { byId, decimals } from "./dom.js";
import { startFeedback } from "./feedback.js";
import { filtered, filterIn, showFilter } from "./filters.js";
import { startGoals } from "./goals.js";
import { startHeatMap } from "./heat.js";
import { startLatency } from "./latency.js";
import { FilterMenus } from "./menus.js";
import { attempt, settle, show } from "./notices.js";
import { startPlan } from "./plan.js";
import { refreshPools, startPools } from "./pools.js";
import { startScores } from "./scores.js";
import { startStory } from "./story.js";
import { startTrial } from "./trial.js";
import { startUpload } from "./upload.js";

const HEALTH_MS = { ready: 5000, other: 1000 };
/** @type {Record<string, boolean | "last" | "near">} */
const REPEATS = { last: "last", false: false, near: "near", true: true };
const VIEWS = ["replies", "goals", "plan", "pools", "latency"];

for (const start of [
  startChat,
  startCandidates,
  startConfidence,
  startFeedback,
  startHeatMap,
  startScores,
  startGoals,
  startPlan,
  startPools,
  startBrowse,
  startCandidateForm,
  startTrial,
  startUpload,
  startLatency,
  startStory,
])
  start();
startViews();
startSettings();
startKey();
byId("help-button").addEventListener("click", () => byId("help-dialog").showModal());
window.addEventListener("unhandledrejection", (event) => show(event.reason));
watch();
begin();

/** Load everything, pools first: a ranking needs the name of one. */
async function begin() {
  await attempt(refreshPools);
  await attempt(() => session.resume());
  await attempt(about);
}

/** Load again what could not be loaded while the service was away. */
async function recover() {
  await attempt(refreshPools);
  await attempt(() => session.refresh());
  await attempt(about);
}

async function about() {
  const { model, limits } = await call("GET", "version");
  byId("aggregation").options[0].textContent =
    `model default (${model.aggregation.replace("_", " ")})`;
  byId("top-k").max = String(limits.max_top_k);
  byId("health").title = `${model.name}, ${model.runtime}`;
}

function startViews() {
  const route = () => {
    const named = location.hash.slice(1);
    const view = VIEWS.includes(named) ? named : (document.body.dataset.view ?? VIEWS[0]);
    document.body.dataset.view = view;
    for (const element of document.querySelectorAll(".view"))
      element.hidden = element.dataset.view !== view;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (view === "pools") attempt(refreshPools);
  };
  window.addEventListener("hashchange", route);
  route();
}

function startSettings() {
  const form = byId("settings");
  const [field, aggregation] = [byId("session"), byId("aggregation")];
  const [where, carried] = [byId("where"), byId("session-where")];
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    if (target.type === "range")
      target.nextElementSibling.textContent = decimals(Number(target.value), 2);
  });
  form.addEventListener("change", ({ target }) => {
    if (!form.reportValidity()) return;
    if (target === field) attempt(() => session.open(field.value));
    else if (target === carried)
      attempt(() => filtered(carried, () => session.carry(filterIn(carried))));
    else attempt(() => session.choose(chosen()));
  });
  const options = byId("options");
  options.addEventListener("click", () => {
    options.ariaExpanded = String(options.ariaExpanded !== "true");
  });
  byId("new-session").addEventListener("click", () => {
    session.begin();
    byId("say").focus();
  });
  const menus = [
    new FilterMenus(byId("where-menus"), where),
    new FilterMenus(byId("session-where-menus"), carried),
  ];
  let read = "";
  const readMenus = () => {
    if (!byId("filters").open) return;
    read = session.settings.pool;
    attempt(() => Promise.all(menus.map((each) => each.read(read))));
  };
  byId("filters").addEventListener("toggle", readMenus);
  const draw = () => {
    const { settings } = session;
    if (document.activeElement !== field) field.value = session.name;
    aggregation.value = settings.aggregation;
    byId("repeat").value = String(settings.repeat);
    byId("wordings").value = settings.wordings;
    byId("diversity").value = String(settings.diversity);
    byId("diversity-words").textContent = decimals(settings.diversity, 2);
    showFilter(where, settings.where);
    showFilter(carried, session.where);
    if (read !== settings.pool) readMenus();
    for (const each of menus) each.show();
    byId("filters-words").textContent = settings.where || session.where ? "in force" : "";
    if (byId("pool").options.length) byId("pool").value = settings.pool;
    byId("last-rows-label").hidden = settings.aggregation !== "last_rows";
    for (const [id, number] of [
      ["last-rows", settings.lastRows],
      ["top-k", settings.topK],
    ]) {
      if (document.activeElement?.id !== id) byId(id).value = String(number);
    }
  };
  session.addEventListener("change", draw);
  draw();
}

const chosen = () => ({
  pool: byId("pool").value || session.settings.pool,
  aggregation: byId("aggregation").value,
  lastRows: Number(byId("last-rows").value) || 1,
  topK: Number(byId("top-k").value) || 1,
  where: filterIn(byId("where")),
  repeat: REPEATS[byId("repeat").value],
  wordings: byId("wordings").value,
  diversity: Number(byId("diversity").value),
});

function startKey() {
  const dialog = byId("key-dialog");
  const ask = (words) => {
    if (dialog.open) return;
    byId("key-why").textContent = words;
    byId("key").value = key.get();
    dialog.returnValue = "cancel";
    dialog.showModal();
    byId("key").select();
  };
  const kept = "This tab keeps the key until you close it, and sends it to this service only.";
  byId("key-button").addEventListener("click", () => ask(kept));
  window.addEventListener("keyneeded", () =>
    ask(`${key.get() ? "The service does not know this key." : "The service needs a key."} ${kept}`),
  );
  dialog.addEventListener("close", () => {
    const typed = byId("key").value.trim();
    byId("key").value = "";
    if (dialog.returnValue === "cancel") return;
    if (/[^\x21-\x7e]/.test(typed))
      return show(new Error("A key has letters, digits and symbols, and no spaces."));
    if (dialog.returnValue === "save" && typed) key.set(typed);
    else key.forget();
    mark();
    settle("unauthenticated");
    begin();
  });
  const mark = () => byId("key-button").classList.toggle("kept", Boolean(key.get()));
  mark();
}

/** Check the service regularly, more often while it is not ready. */
async function watch() {
  if (!document.hidden) await health();
  setTimeout(watch, byId("health").dataset.state === "ready" ? HEALTH_MS.ready : HEALTH_MS.other);
}

/** Show whether the service is ready, and which checks fail. */
async function health() {
  const [state, words, why] = await call("GET", "readyz", { repeatable: false }).then(
    () => ["ready", "Ready", ""],
    (error) =>
      error.status
        ? ["unready", "Not ready", error.message]
        : ["away", "Unreachable", error.message],
  );
  if (state === "ready") settle("unreachable");
  const before = byId("health").dataset.state;
  byId("health").dataset.state = state;
  byId("health-words").textContent = words;
  if (why) byId("health").title = why;
  if (state === "ready" && before === "away") recover();
}
