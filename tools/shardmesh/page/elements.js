// SPDX-License-Identifier: Apache-2.0
// Makes elements, and formats numbers and names. Names come from untrusted files, so they are only used as text.

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// For example: element("td", {class: "number", onclick: chosen}, "text", another)
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function drawing(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// Replaces the middle of a long text by "...". Keeps twice as much of the end as of the beginning, because the keys of
// a model differ at their ends. The command line does the same. Does not cut surrogate pairs.
function shortened(text, most) {
  if (text.length <= most) return text;
  const is_second = (at) => (text.charCodeAt(at) & 0xfc00) === 0xdc00, kept = Math.max(0, most - 3);
  let head = Math.floor(kept / 3), tail = text.length - (kept - head);
  if (head > 0 && is_second(head)) --head;
  if (is_second(tail)) ++tail;
  return `${text.slice(0, head)}...${text.slice(tail)}`;
}

// Wraps the text of an element of class "tail", which shows the end of a text that does not fit.
const with_tail = (text) => element("bdi", {dir: "ltr"}, text);

// Shortens a name and escapes its invisible and bidirectional characters, as the command line does. A lone surrogate
// stands for a byte that is not UTF-8.
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;
function shown(name, most = 400) {
  return shortened(name, most).replace(hidden, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
}

// Shows an empty key as "".
const shown_key = (key, most) => (key === "" ? '""' : shown(key, most));

// Rounds ties to even, as the command line does; toFixed would round them up.
function rounded(amount, digits) {
  const scaled = amount * 10 ** digits, below = Math.floor(scaled);
  return ((scaled - below === 0.5 ? below + (below % 2) : Math.round(scaled)) / 10 ** digits).toFixed(digits);
}

// Formats bytes as the command line does: "1 byte", "512 bytes", "1.5 KiB".
function human_bytes(size) {
  if (size < 1024) return `${size} byte${size === 1 ? "" : "s"}`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let amount = size / 1024, unit = 0;
  for (; amount >= 1024 && unit + 1 < units.length; ++unit) amount /= 1024;
  return `${rounded(amount, amount < 10 ? 1 : 0)} ${units[unit]}`;
}

// Marks numbers beyond 2^53 as approximate: JavaScript does not represent them exactly.
function exact(number) {
  return Number.isSafeInteger(number) ? String(number) : `about ${number.toPrecision(4)}`;
}

const plural = (count, word) => `${exact(count)} ${word}${count === 1 ? "" : "s"}`;
const percent = (part, all) => `${all > 0 ? Number(((100 * part) / all).toFixed(1)) : 0} %`;
const volume = (sizes) => sizes.reduce((product, size) => product * size, 1);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const interval = (box) => `[${box.offsets.map((from, d) => `${from}:${from + box.sizes[d]}`).join(", ")})`;
const shape_text = (shape) => `[${shape.join(", ")}]`;

// Formats ascending numbers as ranges: [0, 1, 2, 5] as "0-2,5".
function ranges(numbers) {
  const parts = [];
  for (let first = 0, last; first < numbers.length; first = last) {
    for (last = first + 1; last < numbers.length && numbers[last] === numbers[last - 1] + 1; ++last);
    const separator = last - first === 2 ? "," : "-";
    parts.push(last - first === 1 ? `${numbers[first]}` : `${numbers[first]}${separator}${numbers[last - 1]}`);
  }
  return parts.join(",");
}

// The golden angle gives neighbouring ranks very different colours.
const color_of = (number) => `hsl(${(number * 137.508 + 210) % 360} 62% ${number % 2 ? 70 : 64}%)`;

// Makes at most `most` items of a list. A further item counts the rest, and the `more` items that `all` lacks.
function listed(all, most, text, more = 0) {
  const items = all.slice(0, most).map((one) => element("li", {}, text(one))), rest = all.length - items.length + more;
  return rest > 0 ? [...items, element("li", {class: "soft"}, `and ${exact(rest)} more`)] : items;
}

// A figure at the top of the page. `value` is the exact number behind the rounded `text`.
function figure(title, text, note = "", value = undefined) {
  return element("div", {}, element("dt", {}, title),
    element("dd", {"data-value": value, "data-title": title}, text, element("small", {}, note)));
}

function card(title, {controls = [], ...attributes}, ...children) {
  return element("section", {class: "card", ...attributes},
    element("div", {class: "head"}, element("h2", {}, title), ...controls), ...children);
}

// A group of buttons, one of which is pressed.
function choice(names, pressed, choose) {
  const buttons = names.map((name) => element("button", {type: "button", "aria-pressed": String(name === pressed), onclick: () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
    choose(name);
  }}, name));
  return element("span", {class: "choice", role: "group"}, ...buttons);
}

// Shows a tooltip for the element under the pointer. `lines(target)` returns its lines, the first of which is a title;
// nothing for no tooltip.
function tip_over(area, lines) {
  const tip = document.getElementById("tip");
  area.addEventListener("pointermove", (event) => {
    const said = lines(event.target, event);
    tip.hidden = !said;
    if (!said) return;
    tip.replaceChildren(element("b", {}, said[0]), ...said.slice(1).map((line) => element("div", {}, line)));
    const right = event.clientX + 14 + tip.offsetWidth > innerWidth, below = event.clientY + 14 + tip.offsetHeight > innerHeight;
    tip.style.left = `${Math.max(4, right ? event.clientX - tip.offsetWidth - 10 : event.clientX + 14)}px`;
    tip.style.top = `${Math.max(4, below ? event.clientY - tip.offsetHeight - 10 : event.clientY + 14)}px`;
  });
  area.addEventListener("pointerleave", () => { tip.hidden = true; });
}
