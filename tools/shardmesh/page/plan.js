// SPDX-License-Identifier: Apache-2.0
// The page of a transfer plan.
const data = JSON.parse(document.getElementById("data").textContent);
const peaks = Object.entries(data.peak_bytes).map(([rank, bytes]) => ({rank: Number(rank), bytes}));
const ranks = peaks.length;
const sent = new Array(ranks).fill(0), received = new Array(ranks).fill(0);
for (const {from, to, bytes} of data.links) {
  sent[from] += bytes;
  received[to] += bytes;
}
const side = (one) => placement_lines(one).join(", ");

const links = data.links.map((link) => ({...link, name: `${link.from} to ${link.to}`}));
const busiest = [...links].sort((a, b) => b.bytes - a.bytes);
const link_lines = (link) => [`rank ${link.from} to rank ${link.to}`, plural(link.bytes, "byte"), `${percent(link.bytes, data.bytes_moved)} of what moves`];
const rank_bars = (amounts) => amounts.map((bytes, rank) => ({name: `rank ${rank}`, bytes, color: color_of(rank)}));
const rank_lines = (item) => [item.name, plural(item.bytes, "byte")];

// The rows of the table: all copies, including those within a rank.
const copies = data.copies.map((copy) => ({...copy, cells: volume(copy.sizes), where: interval(copy)}));
const table = make_table("copies", [
  {title: "from", width: "minmax(60px, 0.6fr)", number: true, text: (c) => String(c.from), value: (c) => c.from},
  {title: "to", width: "minmax(60px, 0.6fr)", number: true, text: (c) => String(c.to), value: (c) => c.to},
  {title: "box", width: "minmax(130px, 3fr)", code: true, text: (c) => c.where, value: (c) => c.offsets.join()},
  {title: "elements", width: "minmax(90px, 1fr)", number: true, text: (c) => exact(c.cells), value: (c) => c.cells},
], {
  hover: (copy) => [copy.from === copy.to ? `rank ${copy.from} keeps` : `rank ${copy.from} to rank ${copy.to}`, copy.where, plural(copy.cells, "element")],
  choose: (copy) => table.mark(copy),
});

// "3" finds the copies that rank 3 sends or receives, and "3>5" those of one link.
const found = element("span", {class: "soft", id: "found"});
function search(words) {
  const [, from, to] = /^\s*(\d+)\s*(?:>|to|\s)\s*(\d+)\s*$/.exec(words) ?? [];
  const one = /^\s*(\d+)\s*$/.exec(words)?.[1];
  const wanted = (copy) => from !== undefined ? copy.from === Number(from) && copy.to === Number(to)
    : one !== undefined ? copy.from === Number(one) || copy.to === Number(one) : copy.where.includes(words.trim());
  const some = words.trim() ? copies.filter(wanted) : copies;
  found.textContent = `${some.length === 1 ? "1 copy" : `${some.length} copies`}, ${plural(sum(some.map((copy) => copy.cells)), "element")}`;
  page_state.set("search", words);
  table.show(some);
}
const box = element("input", {type: "search", placeholder: "rank, or sender > receiver", "aria-label": "search", oninput: () => search(box.value)});
box.value = page_state.get("search");
function show_link(from, to) {
  box.value = `${from} > ${to}`;
  search(box.value);
}

const matrix = make_matrix(ranks, links, (from, to) => show_link(from, to));

// The map of the tensor's boxes, each of which moves as one, coloured by sender or by receiver.
const map_view = element("div");
const sides = {"by sender": "from", "by receiver": "to"};
function show_map(name) {
  const member = sides[name];
  map_view.replaceChildren(make_box_map(data.shape, copies, {
    label: (parts) => ranges([...new Set(parts.map((part) => part[member]))].sort((a, b) => a - b)),
    color: (parts) => color_of(parts[0][member]),
    hover: (area) => [interval(area), ...area.parts.slice(0, 8).map((part) => part.from === part.to ? `rank ${part.from} keeps it` : `rank ${part.from} to rank ${part.to}`),
      ...(area.parts.length > 8 ? [`and ${area.parts.length - 8} more`] : [])],
  }));
}

document.getElementById("kind").textContent = "plan";
document.getElementById("page").classList.add("halves");
document.getElementById("page").replaceChildren(
  element("dl", {class: "figures whole"},
    figure("moves between ranks", human_bytes(data.bytes_moved), plural(data.bytes_moved, "byte"), data.bytes_moved),
    figure("lower bound", human_bytes(data.lower_bound), plural(data.lower_bound, "byte"), data.lower_bound),
    figure("in all", human_bytes(data.bytes_total), `${plural(data.bytes_total, "byte")} with what stays`, data.bytes_total),
    figure("most messages on a rank", human_bytes(peaks.reduce((most, peak) => Math.max(most, peak.bytes), 0)), "bytes at once",
      peaks.reduce((most, peak) => Math.max(most, peak.bytes), 0)),
    figure("links", exact(links.length), `of ${plural(ranks, "rank")}`, links.length)),
  element("p", {class: "whole soft mono", id: "sides"}, `${data.dtype} ${shape_text(data.shape)}: from ${side(data.from)} → to ${side(data.to)}`),
  card("Bytes from sender (rows) to receiver (columns)", {}, matrix.area, matrix.legend),
  card("Busiest links", {}, make_bars(busiest.map((link) => ({...link, color: "var(--accent)"})), link_lines, "nothing moves")),
  element("div", {class: "whole thirds"},
    card("Sent per rank", {}, make_bars(rank_bars(sent), rank_lines)),
    card("Received per rank", {}, make_bars(rank_bars(received), rank_lines)),
    card("Messages held per rank", {}, make_bars(rank_bars(peaks.map((peak) => peak.bytes)), rank_lines))),
  card("Copies", {controls: [found, box]}, table.table),
  card("Pieces of the tensor", {controls: [choice(Object.keys(sides), "by sender", show_map)]}, map_view));

theme_switch(matrix.draw);
search(box.value);
show_map("by sender");
