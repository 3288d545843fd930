// SPDX-License-Identifier: Apache-2.0
// A table that has elements only for the visible rows, so a million rows cost as much as twenty. A click on a title
// sorts the rows, and the arrow keys move the choice.

const row_height = 28, most_rows = 1000000; // browsers limit an element to about 33 million pixels

// columns: [{title, width, text(row), value(row), number, optional, key, tail, code}]. `value` is the key for sorting.
// Columns with `key` or `tail` show the end of a text that does not fit. `hover(row)` returns the lines of a tooltip;
// `choose(row)` is called for the row that the user chooses.
function make_table(name, columns, {hover, choose}) {
  let rows = [], sorted_by = -1, descending = false, chosen = null;
  const body = element("div", {class: "rows", role: "rowgroup"});
  const titles = columns.map((column, i) => element("div",
    {role: "columnheader", class: class_of(column), "aria-sort": "none"},
    element("button", {type: "button", onclick: () => sort(i)}, column.title)));
  const head = element("div", {class: "row titles", role: "row"}, ...titles);
  const table = element("div", {class: "table", role: "grid", tabindex: "0", "aria-label": name}, head, body);

  function class_of(column) {
    return `cell ${column.number ? "number" : ""} ${column.optional ? "optional" : ""} ${column.key || column.code ? "code" : ""} ${column.key || column.tail ? "tail" : ""}`;
  }

  function lay_columns() {
    const narrow = matchMedia("(max-width: 900px)").matches;
    table.style.setProperty("--columns", columns.filter((column) => !(narrow && column.optional)).map((column) => column.width).join(" "));
  }

  function draw() {
    const first = Math.max(0, Math.floor(table.scrollTop / row_height) - 8);
    const last = Math.min(rows.length, most_rows, first + Math.ceil((table.clientHeight || 600) / row_height) + 16);
    const made = [];
    for (let i = first + (first % 2); i < last; ++i) {
      const row = rows[i];
      const cells = columns.map((column) => element("div", {class: class_of(column), role: "gridcell"}, column.key || column.tail ? with_tail(column.text(row)) : column.text(row)));
      const line = element("div", {class: row === chosen ? "row chosen" : "row", role: "row", "aria-rowindex": i + 2}, ...cells);
      line.style.top = `${i * row_height}px`;
      line.row = row;
      made.push(line);
    }
    body.replaceChildren(...made);
  }

  function sort(i) {
    descending = sorted_by === i ? !descending : Boolean(columns[i].number);
    sorted_by = i;
    order();
    draw();
  }

  function order() {
    if (sorted_by < 0) return;
    const value = columns[sorted_by].value, sign = descending ? -1 : 1;
    const keyed = rows.map((row, at) => [value(row), at, row]);
    keyed.sort(([a, i], [b, j]) => (a < b ? -sign : a > b ? sign : i - j));
    rows = keyed.map(([, , row]) => row);
    titles.forEach((title, i) => title.setAttribute("aria-sort", i !== sorted_by ? "none" : descending ? "descending" : "ascending"));
    head.querySelectorAll("button").forEach((button, i) => {
      button.textContent = columns[i].title + (i !== sorted_by ? "" : descending ? " ↓" : " ↑");
    });
  }

  function show(some) {
    rows = some;
    order();
    body.style.height = `${Math.min(rows.length, most_rows) * row_height}px`;
    table.setAttribute("aria-rowcount", rows.length + 1);
    table.scrollTop = 0;
    draw();
  }

  function mark(row) {
    chosen = row;
    const at = rows.indexOf(row), top = at * row_height, room = table.clientHeight - 32;
    if (at >= 0 && (top < table.scrollTop || top + row_height > table.scrollTop + room)) table.scrollTop = Math.max(0, top - room / 2);
    draw();
  }

  table.addEventListener("scroll", () => requestAnimationFrame(draw));
  table.addEventListener("click", (event) => {
    const line = event.target.closest(".rows .row");
    if (line) choose(line.row);
  });
  table.addEventListener("keydown", (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step || rows.length === 0) return;
    event.preventDefault();
    choose(rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(chosen) + step))]);
  });
  tip_over(body, (target) => { const line = target.closest(".row"); return line && hover(line.row); });
  on_resize(table, () => { lay_columns(); draw(); });
  lay_columns();
  return {table, show, mark, sort_by: sort};
}
