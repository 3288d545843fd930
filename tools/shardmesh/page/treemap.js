// SPDX-License-Identifier: Apache-2.0
// A treemap: nested tiles whose areas are proportional to bytes. Nodes that are too small to see share a tile with a
// count, so the number of tiles is bounded for any number of tensors.

const most_tiles = 1500, least_area = 90, least_group_area = 2500, title_height = 17;

// Returns rectangles for the items (sorted, the largest first; all with bytes > 0). They fill the place, and are as
// close to squares as possible.
// Source: Bruls, Huizing, van Wijk, Squarified Treemaps, 2000.
function squarify(items, place) {
  const made = [];
  let {x, y, width, height} = place, left = sum(items.map((item) => item.bytes));
  for (let first = 0; first < items.length;) {
    const side = Math.min(width, height), scale = (width * height) / left;
    const worst = (smallest, largest, total) => {
      const thick = (total * scale) / side;
      return Math.max((largest * scale) / (thick * thick), (thick * thick) / (smallest * scale));
    };
    let total = items[first].bytes, last = first + 1;
    while (last < items.length && worst(items[last].bytes, items[first].bytes, total + items[last].bytes) <=
        worst(items[last - 1].bytes, items[first].bytes, total)) total += items[last++].bytes;
    const thick = side > 0 ? (total * scale) / side : 0;
    for (let along = 0; first < last; ++first) {
      const length = (items[first].bytes / total) * side;
      made.push({item: items[first], place: width >= height ? {x, y: y + along, width: thick, height: length}
                                                              : {x: x + along, y, width: length, height: thick}});
      along += length;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    left -= total;
  }
  return made;
}

const largest_first = (items) => items.sort((a, b) => b.bytes - a.bytes);

// Gathers neighbours that are too small to be seen one by one: "0 ... 99". Makes at most as many groups as are visible
// in the area.
function gathered(children, area) {
  const total = sum(children.map((child) => child.bytes)), most = Math.max(1, Math.min(children.length / 2, 64, Math.floor(area / least_group_area)));
  const groups = [];
  for (const child of children) {
    const last = groups.at(-1);
    if (last && last.bytes + child.bytes / 2 <= total / most) {
      last.children.set(child, child);
      last.bytes += child.bytes;
      last.tensors += child.tensors;
    } else {
      groups.push({bytes: child.bytes, tensors: child.tensors, children: new Map([[child, child]]), is_gathered: true});
    }
  }
  for (const group of groups) {
    const names = [...group.children.values()].map((child) => child.name);
    group.name = groups.length === 1 ? `${names.length} more` : names.length === 1 ? names[0] : `${names[0]} ... ${names.at(-1)}`;
  }
  return groups;
}

// Returns the children of a group that are large enough to be visible in the area, and the others gathered in groups.
function visible_children(group, area) {
  const all = [...group.children.values()].filter((child) => child.bytes > 0), total = sum(all.map((child) => child.bytes));
  const is_seen = (child) => (child.bytes / total) * area >= least_area;
  const seen = all.filter(is_seen), others = all.filter((child) => !is_seen(child));
  if (others.length < 2) return largest_first(all);
  const share = sum(others.map((child) => child.bytes)) / total;
  return largest_first([...seen, ...gathered(others, share * area)]);
}

// Nodes are {name, bytes, tensors, children: Map or null, entry}. `paint(node)` returns the colour of a tile. A click
// calls `open(node)` for a group, and `choose(entry)` for a tensor. `hover(node)` returns the lines of a tooltip.
function make_treemap(name, {paint, open, choose, hover}) {
  const area = element("div", {class: "treemap", role: "img", "aria-label": name});
  let root = null, chosen = null;

  function tile(node, place, kind, text) {
    const made = element("div", {class: `tile ${kind}${text ? "" : " bare"}${node.entry && node.entry === chosen ? " chosen" : ""}`}, text);
    for (const [property, value] of [["left", place.x], ["top", place.y], ["width", place.width], ["height", place.height]])
      made.style[property] = `${value}px`;
    if (kind === "leaf") made.style.background = paint(node);
    if (kind === "rest") made.style.background = `color-mix(in srgb, ${paint(node)} 30%, var(--card))`;
    made.node = node;
    return made;
  }

  function draw() {
    const made = [], waiting = [{node: root, place: {x: 0, y: 0, width: area.clientWidth, height: area.clientHeight}, depth: 0}];
    for (let at = 0; root && at < waiting.length; ++at) {
      const {node, place, depth} = waiting[at];
      for (const {item, place: inner} of squarify(visible_children(node, place.width * place.height), place)) {
        const text = inner.width > 26 && inner.height > 13 ? shown(item.name, 80) : "";
        const is_group = item.children && !item.is_gathered && inner.width > 44 && inner.height > 44 && depth < 5 && made.length < most_tiles;
        made.push(tile(item, inner, item.is_gathered ? "rest" : is_group ? "group" : "leaf", text));
        if (!is_group) continue;
        waiting.push({node: item, depth: depth + 1, place: {x: inner.x + 3, y: inner.y + title_height,
          width: inner.width - 6, height: inner.height - title_height - 3}});
      }
    }
    area.replaceChildren(...made);
  }

  area.addEventListener("click", (event) => {
    const node = event.target.node;
    if (!node) return;
    if (node.children) open(node); else choose(node.entry);
  });
  tip_over(area, (target) => target.node && hover(target.node));
  on_resize(area, draw);
  return {area, show(node) { root = node; draw(); }, mark(entry) { chosen = entry; draw(); }, draw};
}
