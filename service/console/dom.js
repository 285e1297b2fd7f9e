/** Elements. Text goes in as text nodes only: nothing in the console parses markup. */

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id */
export const byId = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * Make an element.
 * @param {string} selector "tag.class.class"
 * @param {Record<string, any>} properties `onclick` and the like are listeners, `vars` are custom
 *   properties for the style sheet; the others are attributes, left out where null or false.
 * @param {...(Node | string | number | null)} children
 * @returns {any}
 */
export function h(selector, properties = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  return dress(document.createElement(tag), classes, properties, children);
}

/** Make an element of a drawing; arguments as in `h`. */
export function svg(selector, properties = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  return dress(document.createElementNS(SVG, tag), classes, properties, children);
}

function dress(element, classes, { vars = {}, ...properties }, children) {
  if (classes.length) element.classList.add(...classes);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const [name, value] of Object.entries(vars)) element.style.setProperty(`--${name}`, value);
  element.append(...children.filter((child) => child !== null).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Set the options of a <select>, which keeps its choice if that still exists. */
export function setOptions(select, names, preferred = select.value) {
  select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  if (names.includes(preferred)) select.value = preferred;
}

/** Announce something to screen readers. */
export function announce(words) {
  byId("live").textContent = words;
}

/** @param {string} words Shown while there is nothing else. */
export const empty = (words) => h("p.empty", {}, words);

/** Format a number with a typographic minus sign, and without "−0.00". */
export function decimals(value, digits = 3) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export const thousands = (value) => Math.round(value).toLocaleString("en");

/** @param {number} ms */
export function milliseconds(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  return `${ms.toFixed(ms > 0 && ms < 10 ? 1 : 0)} ms`;
}

/** Return a function that runs work once its calls have paused. */
export function debounced(work, ms = 350) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}

/** @param {number} bytes */
export function fileSize(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), units.length - 1);
  return `${(bytes / 1000 ** power).toFixed(power && bytes / 1000 ** power < 10 ? 1 : 0)} ${units[power]}`;
}
