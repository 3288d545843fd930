// SPDX-License-Identifier: Apache-2.0
// The page of a layout.
const data = JSON.parse(document.getElementById("data").textContent);
const most_listed_boxes = 8;
const bytes_text = (bytes) => bytes === null ? "unknown" : human_bytes(bytes);
const box_text = (box) => box.offsets.length === 0 ? "the scalar" : interval(box);

function boxes_text(rank) {
  const texts = rank.boxes.slice(0, most_listed_boxes).map(box_text);
  const more = rank.boxes.length - texts.length + (rank.more_boxes ?? 0);
  return texts.length === 0 ? "nothing" : texts.join(" ") + (more > 0 ? ` and ${exact(more)} more` : "");
}
const ranks = data.ranks.map((rank) => ({...rank, where: boxes_text(rank), place: coordinate_text(data, rank.coordinate)}));
// Null if the elements of some rank do not fill whole bytes.
const amounts = ranks.every((rank) => rank.bytes !== null) ? ranks.map((rank) => rank.bytes) : null;
const amount_figure = (title, combined) => amounts === null ? figure(title, "unknown", whose) : figure(title, human_bytes(combined()), whose, combined());
const more_ranks = data.more_ranks ?? 0, more_boxes = sum(ranks.map((rank) => rank.more_boxes ?? 0));
const whose = more_ranks > 0 ? `of the ${plural(ranks.length, "rank")} listed` : `of ${plural(ranks.length, "rank")}`;

const rank_lines = (rank) => [`rank ${rank.rank}`, `at ${rank.place}`, `local shape ${shape_text(rank.local_shape)}, ${bytes_text(rank.bytes)}`, rank.where];
const table = make_table("ranks", [
  {title: "rank", width: "minmax(60px, 0.5fr)", number: true, text: (r) => String(r.rank), value: (r) => r.rank},
  {title: "mesh coordinate", width: "minmax(100px, 1.4fr)", text: (r) => r.place, value: (r) => r.coordinate.join(), optional: true},
  {title: "local shape", width: "minmax(80px, 1fr)", text: (r) => shape_text(r.local_shape), value: (r) => volume(r.local_shape), optional: true},
  {title: "boxes", width: "minmax(120px, 3fr)", code: true, text: (r) => r.where, value: (r) => r.boxes.map((box) => box.offsets.join()).join()},
  {title: "bytes", width: "minmax(90px, 0.8fr)", number: true, text: (r) => r.bytes === null ? "unknown" : exact(r.bytes), value: (r) => r.bytes ?? -1},
], {hover: rank_lines, choose: (rank) => table.mark(rank)});

// Searches for a rank if the text is a number, and otherwise for rows that contain every word.
const found = element("span", {class: "soft", id: "found"});
function search(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean), one = /^\s*(\d+)\s*$/.exec(words)?.[1];
  const some = one !== undefined ? ranks.filter((rank) => rank.rank === Number(one)) : ranks.filter((rank) => {
    const text = `rank ${rank.rank} ${rank.place} ${shape_text(rank.local_shape)} ${rank.where}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  found.textContent = `${plural(some.length, "rank")}${more_ranks > 0 ? ` of those listed; ${exact(more_ranks)} more are not in this page` : ""}`;
  page_state.set("search", words);
  table.show(some);
}
const box = element("input", {type: "search", placeholder: "rank, coordinate, or box", "aria-label": "search", oninput: () => search(box.value)});
box.value = page_state.get("search");

// The map of the boxes and their ranks. Equal boxes are drawn once, with all of their ranks.
const held = ranks.flatMap((rank) => rank.boxes.map((one) => ({...one, rank: rank.rank})));
const holders = (parts) => ranges([...new Set(parts.map((part) => part.rank))].sort((a, b) => a - b));
const map = make_box_map(data.shape, held, {
  label: holders,
  color: (parts) => color_of(parts[0].rank),
  hover: (area) => [box_text(area), `on ${shortened(holders(area.parts), 400)}`],
});
const cut = [more_ranks > 0 && plural(more_ranks, "rank"), more_boxes > 0 && `${exact(more_boxes)} box${more_boxes === 1 ? "" : "es"} of rank ${ranks.at(-1).rank}`].filter(Boolean);

document.getElementById("kind").textContent = "layout";
document.getElementById("page").classList.add("halves");
document.getElementById("page").replaceChildren(...[
  element("dl", {class: "figures whole"},
    figure("bytes of the tensor", bytes_text(data.bytes), `${data.dtype} ${shape_text(data.shape)}`, data.bytes ?? undefined),
    figure("ranks", exact(ranks.length + more_ranks), "of the mesh", ranks.length + more_ranks),
    amount_figure("bytes on all ranks", () => sum(amounts)),
    amount_figure("most on a rank", () => amounts.reduce((most, one) => Math.max(most, one), 0)),
    amount_figure("least on a rank", () => amounts.reduce((least, one) => Math.min(least, one), Infinity))),
  cut.length > 0 && element("p", {class: "card problems whole", id: "cut"}, `This page lists ${plural(ranks.length, "rank")}. It leaves out ${cut.join(" and ")}.`),
  card("Which rank holds which box", {}, map),
  card("Mesh and placements", {}, element("dl", {class: "facts", id: "placements"}, ...data.placements.flatMap((placement, at) =>
    [element("dt", {}, `${dimension_name(data, at)} (${plural(data.mesh[at], "rank")})`),
      element("dd", {}, `${placement}: ${placement_meaning(placement, data.shape)}`)])),
  element("h2", {}, "Bytes per rank"),
  make_bars(ranks.map((rank) => ({name: `rank ${rank.rank}`, bytes: rank.bytes ?? 0, color: color_of(rank.rank), rank})), (item) => rank_lines(item.rank))),
  card("Ranks", {class: "card whole", controls: [found, box]}, table.table),
].filter(Boolean));

theme_switch(() => {});
search(box.value);
