// SPDX-License-Identifier: Apache-2.0
// The page of a tensor that a mapping makes: its boxes, and the boxes of the sources that fill them.
const data = JSON.parse(document.getElementById("data").textContent);
const box_text = (box) => box.offsets.length === 0 ? "the scalar" : interval(box);
const source_of = (box) => data.sources[box.source];
const boxes = data.boxes, more = data.more_boxes;

const lines_of = (box) => [box_text(box), `from ${box_text(box.from)}`, `of ${shown_key(source_of(box).key)}`];
const table = make_table("boxes", [
  {title: "box", width: "minmax(120px, 1.2fr)", code: true, text: box_text, value: (box) => box.offsets.join()},
  {title: "source", width: "minmax(160px, 2fr)", key: true, text: (box) => shown_key(source_of(box).key), value: (box) => box.source},
  {title: "box of the source", width: "minmax(120px, 1.2fr)", code: true, text: (box) => box_text(box.from), value: (box) => box.from.offsets.join()},
  {title: "elements", width: "minmax(80px, 0.6fr)", number: true, text: (box) => exact(volume(box.sizes)), value: (box) => volume(box.sizes), optional: true},
], {hover: lines_of, choose: (box) => table.mark(box)});

const found = element("span", {class: "soft", id: "found"});
function search(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const some = boxes.filter((box) => {
    const text = `${box_text(box)} ${source_of(box).key} ${box_text(box.from)}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  found.textContent = `${exact(some.length)} box${some.length === 1 ? "" : "es"}${more > 0 ? ` of those listed; ${exact(more)} more are not in this page` : ""}`;
  page_state.set("search", words);
  table.show(some);
}
const field = element("input", {type: "search", placeholder: "box or source", "aria-label": "search", oninput: () => search(field.value)});
field.value = page_state.get("search");

const holders = (parts) => ranges([...new Set(parts.map((part) => part.source))].sort((a, b) => a - b));
const map = make_box_map(data.shape, boxes, {
  label: holders,
  color: (parts) => color_of(parts[0].source),
  hover: (area) => [box_text(area), ...area.parts.slice(0, 8).flatMap((part) => lines_of(part).slice(1))],
});

document.getElementById("kind").textContent = "mapping";
document.getElementById("page").classList.add("halves");
document.getElementById("page").replaceChildren(...[
  element("dl", {class: "figures whole"},
    figure("elements", exact(volume(data.shape)), `${data.dtype} ${shape_text(data.shape)}`, volume(data.shape)),
    figure("sources", exact(data.sources.length), "tensors", data.sources.length),
    figure("boxes", exact(boxes.length + more), "of the sources", boxes.length + more)),
  more > 0 && element("p", {class: "card problems whole", id: "cut"}, `This page leaves out ${exact(more)} box${more === 1 ? "" : "es"}.`),
  card("Which source fills which box", {}, map),
  card("Rule", {}, element("dl", {class: "facts", id: "rule"},
    element("dt", {}, "mapping"), element("dd", {}, `${shown(data.from)} to ${shown(data.to)}`),
    element("dt", {}, "rule"), element("dd", {}, shown(data.rule)),
    element("dt", {}, "index"), element("dd", {}, data.index === "" ? "none: the elements are unchanged" : shown(data.index, 4096)),
    element("dt", {}, "operations on values"), element("dd", {}, data.values.length === 0 ? "none" : data.values.join(", "))),
  element("h2", {}, "Sources"),
  element("ol", {start: "0", id: "sources"}, ...listed(data.sources, 100, (one) => `${shown_key(one.key)} ${shape_text(one.shape)}`))),
  card("Boxes", {class: "card whole", controls: [found, field]}, table.table),
].filter(Boolean));

theme_switch(() => {});
search(field.value);
