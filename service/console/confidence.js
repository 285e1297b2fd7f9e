/** The confidence of an answer, and the threshold below which a turn abstains. */

import { session } from "./session.js";
import { byId, decimals, h } from "./dom.js";
import { attempt } from "./notices.js";

const slider = byId("least");

export function startConfidence() {
  session.addEventListener("change", draw);
  slider.addEventListener("input", () => {
    session.settings.least = Number(slider.value);
    draw();
  });
  slider.addEventListener("change", () =>
    attempt(() => session.choose({ least: Number(slider.value) })),
  );
}

function draw() {
  const { answer, settings } = session;
  const known = typeof answer?.confidence === "number";
  slider.value = String(settings.least);
  byId("least-words").textContent = settings.least ? decimals(settings.least, 2) : "the pool's threshold";
  byId("confidence").replaceChildren(...(answer ? [known ? meter(answer) : unknown()] : []));
  const doubt = why(answer, settings.least);
  byId("abstained").textContent = [doubt, ...(answer?.warnings ?? [])].filter(Boolean).join(" ");
  byId("candidates").classList.toggle("doubted", Boolean(doubt));
}

function meter({ confidence, reranked }) {
  const words = `confidence ${decimals(confidence, 2)}${reranked ? ", re-ranked" : ""}`;
  return h("span.confidence", { vars: { share: confidence } }, words);
}

const unknown = () => h("span.soft", {}, "no confidence");

/** Why a turn offers no candidates; "" if it offers some. */
function why(answer, least) {
  if (typeof answer?.confidence !== "number") return "";
  const confidence = `the confidence of the best candidate is ${decimals(answer.confidence, 2)}`;
  if (least && answer.confidence < least)
    return `The turn abstains: ${confidence}, below the threshold of ${decimals(least, 2)}.`;
  return answer.abstained ? `The turn abstained: ${confidence}, below the pool's threshold.` : "";
}
