// SPDX-License-Identifier: Apache-2.0
// Horizontal bars: the bytes of each rank, file, or link.

const most_bars = 512;

// items: [{name, bytes, color}], drawn in their order. `hover(item)` returns the lines of a tooltip.
function make_bars(items, hover, empty = "nothing") {
  const largest = items.reduce((most, item) => Math.max(most, item.bytes), 1);
  const area = element("div", {class: "bars"});
  for (const item of items.slice(0, most_bars)) {
    const bar = element("div", {class: item.bytes > 0 ? "fill" : ""});
    bar.style.width = `${(100 * item.bytes) / largest}%`;
    bar.style.background = item.color;
    const parts = [element("div", {class: "name tail"}, with_tail(shown(item.name))), element("div", {class: "track"}, bar),
      element("div", {class: "amount", "data-value": item.bytes}, human_bytes(item.bytes))];
    for (const part of parts) part.item = item;
    bar.item = item;
    area.append(...parts);
  }
  if (items.length > most_bars) area.append(element("div", {class: "note"}, `and ${items.length - most_bars} more`));
  if (items.length === 0) area.append(element("div", {class: "note"}, empty));
  tip_over(area, (target) => target.item && hover(target.item));
  return area;
}
