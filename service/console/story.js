/** The story of `make demo`, with the pools of `examples/demo`.
 *
 * A page that is opened with `#story` shows it. Each step does by itself what a person would do in the console, and says what to see.
 */

import { byId } from "./dom.js";
import { leadTo } from "./goals.js";
import { attempt } from "./notices.js";
import { orderThese } from "./plan.js";
import { session } from "./session.js";

const STORED = "turnwise.story";
const PLAIN = { where: null, least: 0, repeat: false, wordings: "best", diversity: 0, aggregation: "" };

/** @type {{title: string, words: string, seen?: string, act?: () => Promise<unknown>}[]} */
const STEPS = [
  {
    title: "Turnwise in two minutes",
    words:
      "A chatbot of a bank asks Turnwise what to say next. The replies were written by people; " +
      "Turnwise chooses among them. Each step does something in the console and says what you see.",
  },
  {
    title: "Select",
    words:
      "A user writes: “Hello! I have lost my card.” Of the 84 replies of the pool “banking”, these " +
      "fit best. The line above the candidates says how many milliseconds that took.",
    seen: "candidates",
    act: () => open("banking", "Hello! I have lost my card."),
  },
  {
    title: "Follow the conversation",
    words:
      "The bot says the best reply. The user: “Yes, please!” Six replies of the pool name this as " +
      "an example of what users say before them. The conversation decides among the six.",
    seen: "candidates",
    act: () => goOn("Yes, please!"),
  },
  {
    title: "Ask in other words",
    words:
      "“Great! How do I get the new card?” Nobody wrote this question down. But the first candidate " +
      "has an example close to it, and the pool says that it follows the bot's last reply.",
    seen: "candidates",
    act: () => goOn("Great! How do I get the new card?"),
  },
  {
    title: "Filter",
    words:
      "The user is in a branch. The candidates have metadata, and the filter leaves only " +
      "those of the channel “branch”: the user need not wait for the post.",
    seen: "candidates",
    act: () => {
      byId("filters").open = true;
      return session.choose({ where: { channel: "branch" } });
    },
  },
  {
    title: "Abstain",
    words:
      "“Do you know a good recipe for pancakes?” No reply of a bank fits. The confidence is below " +
      "the threshold of 0.25, so Turnwise offers nothing: the bot can ask back or hand over.",
    seen: "abstained",
    act: async () => {
      byId("filters").open = false;
      await useFirst();
      await session.choose({ where: null, least: 0.25 });
      await session.say("user", "Do you know a good recipe for pancakes?");
    },
  },
  {
    title: "Ask another pool",
    words:
      "The same conversation, the same threshold, but the pool “small-talk”: here a reply fits, " +
      "and the confidence is above the threshold. A bot can ask its pools one after the other.",
    seen: "candidates",
    act: () => session.choose({ pool: "small-talk" }),
  },
  {
    title: "Lead to a goal",
    words:
      "Another user wants to get away for a few days, and the bot would like to hear “The sea " +
      "sounds lovely!” The reply that leads there rises some twenty places to the top.",
    seen: "moves",
    act: async () => {
      await open("travel", "Hello! I would like to go away for a few days in October.");
      await go("#goals");
      await leadTo("The sea sounds lovely!");
    },
  },
  {
    title: "Plan",
    words:
      "The bot wants to say these five things. Turnwise finds the best of their 120 orders: first " +
      "where to go, then the hotel, the payment, the travel plan, and the goodbye.",
    seen: "orders",
    act: async () => {
      await go("#plan");
      await orderThese([
        "Would you like to pay by card or by bank transfer?",
        "Have a wonderful trip!",
        "I have found a small hotel by the beach, with breakfast on the terrace.",
        "Everything is booked. Here is your travel plan.",
        "Would you rather go to the sea, to the mountains or to a city?",
      ]);
    },
  },
  {
    title: "Your turn",
    words:
      "Go on with this conversation, change the filter or the goal, or load replies of your own " +
      "under “Pools”. The pages in the folder docs say how a bot does all this over HTTP.",
    seen: "candidates",
    act: () => go("#replies"),
  },
];

const panel = byId("story-sheet");
let place = Number(sessionStorage.getItem(STORED) ?? -1);

export function startStory() {
  byId("story-next").addEventListener("click", () => attempt(next));
  byId("story-close").addEventListener("click", () => at(-1));
  session.addEventListener("change", ready);
  window.addEventListener("hashchange", asked);
  draw();
  asked();
}

function asked() {
  if (location.hash === "#story") at(0);
}

/** Do the next step, and then say what there is to see; after the last one, start over. */
async function next() {
  const to = (place + 1) % STEPS.length;
  const { act, seen } = STEPS[to];
  await act?.();
  at(to);
  if (seen) byId(seen).closest(".panel").scrollIntoView();
}

/** Show a view, and wait until it is shown. */
async function go(view) {
  if (location.hash === view) return;
  const shown = new Promise((resolve) =>
    window.addEventListener("hashchange", resolve, { once: true }),
  );
  location.hash = view;
  await shown;
}

async function open(pool, text) {
  await go("#replies");
  session.begin();
  await session.choose({ pool, ...PLAIN });
  await session.say("user", text);
}

async function useFirst() {
  const { id, text } = session.candidates[0];
  await session.say(session.responder, text, id);
}

async function goOn(text) {
  await useFirst();
  await session.say("user", text);
}

function at(step) {
  place = step;
  sessionStorage.setItem(STORED, String(place));
  draw();
}

function draw() {
  const step = STEPS[place];
  panel.hidden = !step;
  if (!step) return;
  byId("story-title").textContent = step.title;
  byId("story-words").textContent = step.words;
  byId("story-place").textContent = place ? `${place} of ${STEPS.length - 1}` : "";
  byId("story-next").textContent =
    place === 0 ? "Start" : place < STEPS.length - 1 ? "Next" : "Again";
  ready();
}

/** A step can begin when nothing is under way. */
function ready() {
  byId("story-next").disabled = session.busy;
}
