/** The transcript, coloured by the contributions of its utterances, and the message field below it. */

import { session } from "./session.js";
import { announce, byId, debounced, decimals, empty, h } from "./dom.js";
import { beginningsOf } from "./beginnings.js";
import { heat } from "./heat.js";
import { attempt } from "./notices.js";

const field = byId("say");
const composer = byId("composer");
const transcript = byId("transcript");

/** The candidate that is being edited, and the place in the conversation that it is for. */
let edited = null;

let previewing = new AbortController();

export function startChat() {
  session.addEventListener("change", draw);
  session.addEventListener("select", tint);
  session.addEventListener("waiting", (event) => announce(/** @type {any} */ (event).detail));
  session.addEventListener("arrived", (event) => {
    if (field.value.trim() === /** @type {any} */ (event).detail) field.value = "";
  });
  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  composer.addEventListener("change", placeholder);
  field.addEventListener("input", () => {
    grow();
    if (!field.value) edited = null;
    hidePreview();
  });
  field.addEventListener("input", debounced(preview));
  field.addEventListener("keydown", keys);
  byId("undo").addEventListener("click", () => attempt(undo));
}

const place = () => `${session.name} ${session.turns.length}`;

/** Let the responder write something, or edit a candidate. */
export function write(candidate = null) {
  edited = candidate && { id: candidate.id, place: place() };
  speaker("responder");
  field.value = candidate?.text ?? "";
  grow();
  field.focus();
}

/** Let the responder say a candidate. */
export async function use({ id, text }) {
  if (await attempt(() => session.say(session.responder, text, id))) {
    announce(`Said: ${text}`);
    speaker("user");
    field.focus({ preventScroll: true });
  }
}

async function send() {
  const text = field.value.trim();
  if (!text) return;
  const responds = composer.elements.speaker.value === "responder";
  const candidate = responds && edited?.place === place() ? edited.id : undefined;
  hidePreview();
  const said = await attempt(() =>
    session.say(responds ? session.responder : "user", text, candidate),
  );
  if (!said) return;
  edited = null;
  if (field.value.trim() === text) field.value = "";
  grow();
  if (responds) speaker("user");
  const best = session.current && session.candidates[0];
  if (best) announce(`Best candidate: ${best.text}`);
}

/** Show below the field what would come first if the user said what is in it. */
async function preview() {
  const text = field.value.trim();
  hidePreview();
  if (!text || session.busy || composer.elements.speaker.value === "responder") return;
  const { signal } = previewing;
  const answer = await session.preview(text, signal).catch(() => null); // sending it will say why
  if (!answer || signal.aborted || session.busy) return;
  const [best] = answer.candidates;
  const sure = typeof answer.confidence === "number" ? ` (${decimals(answer.confidence, 2)})` : "";
  byId("preview").textContent = best ? `First: ${best.text}${sure}` : "No candidate would be offered.";
}

function hidePreview() {
  previewing.abort();
  previewing = new AbortController();
  byId("preview").textContent = "";
}

async function undo() {
  const last = session.turns.at(-1);
  if (!(await session.undo())) return;
  announce(`Undone: ${last?.text ?? ""}`);
  if (last && !field.value) {
    speaker(last.speaker === session.responder ? "responder" : "user");
    field.value = last.speaker === session.responder ? "" : last.text;
    grow();
  }
}

function keys(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowDown" && !field.value) {
    event.preventDefault();
    document.querySelector("#candidates .reply[aria-pressed=true]")?.focus();
  }
}

function draw() {
  const { turns, busy, responder } = session;
  byId("turns").textContent = turns.length
    ? `${turns.length} turn${turns.length > 1 ? "s" : ""}`
    : "";
  byId("undo").disabled = busy || !turns.length;
  byId("send").disabled = busy;
  byId("talk").toggleAttribute("data-busy", busy);
  byId("responder-name").textContent = capital(responder);
  const near = transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < 80;
  const longer = transcript.querySelectorAll(".turn").length < turns.length;
  transcript.replaceChildren(...session.utterances.map(utterance));
  if (!turns.length) transcript.append(...beginnings());
  tint();
  if (near || longer) transcript.scrollTop = transcript.scrollHeight;
}

function beginnings() {
  const say = (text) => attempt(() => session.say("user", text));
  const examples = h("div.examples");
  beginningsOf(session.settings.pool).then((texts) =>
    examples.replaceChildren(
      ...texts.map((text) => h("button", { type: "button", onclick: () => say(text) }, text)),
    ),
  );
  return [
    empty("Say something as the user to see the best candidates of the pool. For example:"),
    examples,
  ];
}

/** An utterance: consecutive turns of one speaker. Each turn can be dragged into a plan. */
function utterance(turns) {
  const side = turns[0].speaker === session.responder ? "bot" : "user";
  const bubbles = turns.map(({ text }) =>
    h(
      "p.turn",
      { dir: "auto", draggable: "true", ondragstart: (event) => drag(event, text) },
      text,
    ),
  );
  const name = h("span.speaker", { dir: "auto" }, capital(turns[0].speaker));
  return h(`div.utterance.${side}`, {}, h("header", {}, name, h("span.part")), ...bubbles);
}

/** Colour each utterance by its contribution to the selected candidate. */
function tint() {
  const chosen = session.candidates.find(({ id }) => id === session.selected);
  const parts = chosen?.contributions ?? [];
  const most = Math.max(...parts.map(Math.abs), 1e-9);
  [...transcript.querySelectorAll(".utterance")].forEach((element, place) => {
    const part = parts[place];
    heat(element, part, most);
    const shown = element.querySelector(".part");
    shown.textContent = part === undefined ? "" : decimals(part, 2);
    shown.title = "the part of this utterance in the score of the selected candidate";
  });
}

function drag(event, text) {
  event.dataTransfer.setData("text/plain", text);
  event.dataTransfer.effectAllowed = "copy";
}

function speaker(value) {
  composer.elements.speaker.value = value;
  placeholder();
}

function placeholder() {
  const responds = composer.elements.speaker.value === "responder";
  field.placeholder = `Say something as the ${responds ? session.responder : "user"}`;
}

function grow() {
  field.style.setProperty("height", "auto");
  field.style.setProperty("height", `${Math.min(field.scrollHeight + 2, 160)}px`);
}

export const capital = (name) => name.slice(0, 1).toUpperCase() + name.slice(1);
