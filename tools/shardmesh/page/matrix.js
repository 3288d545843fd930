// SPDX-License-Identifier: Apache-2.0
// Draws the bytes from each rank to each other rank as shades. If there are too many ranks, neighbours share a cell.

const most_cells = 128;

function make_matrix(ranks, links, choose) {
  const width_in_ranks = Math.ceil(ranks / most_cells), cells = Math.ceil(ranks / width_in_ranks);
  const amounts = new Float64Array(cells * cells);
  for (const {from, to, bytes} of links) amounts[Math.floor(from / width_in_ranks) * cells + Math.floor(to / width_in_ranks)] += bytes;
  const largest = amounts.reduce((most, amount) => Math.max(most, amount), 0);
  const canvas = element("canvas", {class: "matrix", role: "img", "aria-label": `bytes between ${ranks} ranks, busiest links in the list beside it`});
  const area = element("div", {}, canvas), margin = 34;
  let cell = 0;

  const name = (at) => width_in_ranks === 1 ? `${at}` : `${at * width_in_ranks}-${Math.min(ranks, (at + 1) * width_in_ranks) - 1}`;
  const shade = (amount) => 0.12 + 0.88 * (amount / largest);

  // Returns the colour of a CSS variable in the current theme.
  function color_named(variable) {
    const probe = element("i");
    probe.style.color = `var(${variable})`;
    area.append(probe);
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  }

  function draw() {
    const size = Math.min(area.clientWidth, 760), scale = devicePixelRatio || 1, pen = canvas.getContext("2d");
    if (size === 0) return;
    canvas.style.height = `${size}px`;
    canvas.width = canvas.height = size * scale;
    pen.scale(scale, scale);
    const style = getComputedStyle(document.body), ink = style.color;
    const accent = color_named("--accent"), card = color_named("--card");
    cell = (size - margin) / cells;
    const gap = cell > 7 ? 1 : 0;
    for (let from = 0; from < cells; ++from)
      for (let to = 0; to < cells; ++to) {
        const amount = amounts[from * cells + to];
        pen.fillStyle = amount > 0 ? accent : ink;
        pen.globalAlpha = amount > 0 ? shade(amount) : 0.05;
        pen.fillRect(margin + to * cell, margin + from * cell, cell - gap, cell - gap);
        if (cell < 56 || amount === 0) continue;
        pen.globalAlpha = 1;
        pen.fillStyle = shade(amount) > 0.6 ? card : ink;
        pen.font = "11px system-ui, sans-serif";
        pen.textAlign = "center";
        pen.fillText(human_bytes(amount), margin + (to + 0.5) * cell, margin + (from + 0.5) * cell + 4);
      }
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    pen.font = "10px system-ui, sans-serif";
    const step = Math.max(1, Math.ceil((name(cells - 1).length * 6.5 + 4) / cell));
    for (let at = 0; at < cells; at += step) {
      pen.textAlign = "center";
      pen.fillText(name(at), margin + (at + 0.5) * cell, margin - 6);
      pen.textAlign = "right";
      pen.fillText(name(at), margin - 6, margin + (at + 0.5) * cell + 4);
    }
  }

  function at(event) {
    const place = canvas.getBoundingClientRect();
    const to = Math.floor((event.clientX - place.left - margin) / cell), from = Math.floor((event.clientY - place.top - margin) / cell);
    return from >= 0 && to >= 0 && from < cells && to < cells ? {from, to} : null;
  }

  tip_over(canvas, (target, event) => {
    const pair = at(event);
    if (!pair) return null;
    const amount = amounts[pair.from * cells + pair.to];
    return [`${name(pair.from)} to ${name(pair.to)}`, pair.from === pair.to && width_in_ranks === 1 ? "what stays does not move" : plural(amount, "byte")];
  });
  canvas.addEventListener("click", (event) => {
    const pair = at(event);
    if (pair && width_in_ranks === 1) choose(pair.from, pair.to);
  });
  on_resize(area, draw);
  const legend = element("div", {class: "soft"}, largest > 0
    ? `stronger is more; the strongest ${width_in_ranks === 1 ? "link" : `cell, of ${width_in_ranks} by ${width_in_ranks} ranks,`} carries ${human_bytes(largest)}`
    : "nothing moves between ranks");
  return {area, legend, draw};
}
