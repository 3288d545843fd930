// SPDX-License-Identifier: Apache-2.0
// Draws the boxes of one tensor and their holders, to scale: the last two dimensions, for one slice of the others at a
// time.

const most_drawn_boxes = 4096;

// Returns the slices: the intervals between the edges of boxes in the outer dimensions. `slices` are the first hundred,
// each {offsets, sizes}; `count` is the number of all.
function slices_of(shape, boxes) {
  let slices = [{offsets: [], sizes: []}], count = 1;
  for (let d = 0; d + 2 < shape.length; ++d) {
    const edges = [...new Set([0, shape[d], ...boxes.flatMap((box) => [box.offsets[d], box.offsets[d] + box.sizes[d]])])].sort((a, b) => a - b);
    count *= edges.length - 1;
    slices = slices.flatMap((slice) => edges.slice(1, 101).map((end, i) =>
      ({offsets: [...slice.offsets, edges[i]], sizes: [...slice.sizes, end - edges[i]]}))).slice(0, 100);
  }
  return {slices, count};
}

// Merges equal boxes: each result, {offsets, sizes, parts}, lists the merged boxes in `parts`.
function merged(boxes) {
  const by_place = new Map();
  for (const box of boxes) {
    const place = `${box.offsets}/${box.sizes}`, known = by_place.get(place);
    if (known) known.parts.push(box); else by_place.set(place, {offsets: box.offsets, sizes: box.sizes, parts: [box]});
  }
  return [...by_place.values()];
}

// boxes: [{offsets, sizes, ...}]. For merged boxes, `label(parts)` returns a short text, `color(parts)` a colour, and
// `hover(box)` the lines of a tooltip.
function make_box_map(shape, boxes, {label, color, hover}) {
  if (boxes.length > most_drawn_boxes) return element("p", {class: "soft"}, `${exact(boxes.length)} boxes are too many to draw`);
  if (shape.includes(0)) return element("p", {class: "soft"}, "no cells");
  const all = merged(boxes), rank = shape.length, {slices, count} = slices_of(shape, all);
  const rows = rank > 1 ? shape[rank - 2] : 1, columns = rank > 0 ? shape[rank - 1] : 1;
  const width = 330, height = rank > 1 ? Math.min(330, Math.max(110, (width * rows) / columns)) : 56, left = 34, top = 16;
  const view = element("div");

  function draw(slice) {
    const picture = drawing("svg", {class: "boxes", viewBox: `0 0 ${left + width + 22} ${top + height + 6}`, role: "img"});
    const edges_x = new Set([0, columns]), edges_y = new Set(rank > 1 ? [0, rows] : []);
    for (const box of all) {
      if (!slice.offsets.every((at, d) => box.offsets[d] <= at && box.offsets[d] + box.sizes[d] >= at + slice.sizes[d])) continue;
      const [row, tall] = rank > 1 ? [box.offsets[rank - 2], box.sizes[rank - 2]] : [0, 1];
      const [column, wide] = rank > 0 ? [box.offsets[rank - 1], box.sizes[rank - 1]] : [0, 1];
      const x = left + (column / columns) * width, y = top + (row / rows) * height;
      const w = (wide / columns) * width, h = (tall / rows) * height;
      const area = drawing("rect", {class: "box", x, y, width: w, height: h, fill: color(box.parts)});
      area.box = box;
      picture.append(area);
      const text = label(box.parts);
      if (h >= 11 && w >= 7 * text.length + 4) picture.append(drawing("text", {x: x + w / 2, y: y + h / 2 + 4, "text-anchor": "middle"}, text));
      for (const edge of [column, column + wide]) edges_x.add(edge);
      if (rank > 1) for (const edge of [row, row + tall]) edges_y.add(edge);
    }
    picture.append(drawing("rect", {class: "frame", x: left, y: top, width, height}));
    let free = -1;
    for (const edge of [...edges_x].sort((a, b) => a - b)) {
      const x = left + (edge / columns) * width, half = 3.2 * String(edge).length;
      if (rank === 0 || x - half < free) continue;
      free = x + half + 6;
      picture.append(drawing("text", {class: "edge", x, y: top - 4, "text-anchor": "middle"}, edge));
    }
    free = -1;
    for (const edge of [...edges_y].sort((a, b) => a - b)) {
      const y = top + (edge / rows) * height;
      if (y < free) continue;
      free = y + 11;
      picture.append(drawing("text", {class: "edge", x: left - 4, y: y + 3, "text-anchor": "end"}, edge));
    }
    tip_over(picture, (target) => target.box && hover(target.box));
    view.replaceChildren(picture);
  }

  draw(slices[0]);
  if (slices.length === 1) return view;
  const select = element("select", {"aria-label": "slice of the outer dimensions", onchange: () => draw(slices[select.selectedIndex])},
    ...slices.map((slice) => element("option", {}, `slice ${interval(slice)}`)));
  return element("div", {}, select, count > slices.length ? ` and ${exact(count - slices.length)} more slices` : "", view);
}
