// SPDX-License-Identifier: Apache-2.0
// The page of a checkpoint.
const data = JSON.parse(document.getElementById("data").textContent);
const checkpoint = read_checkpoint(data);
const title = document.getElementById("name").textContent;
const dtype_colors = ["#7aa7f0", "#f2a65e", "#7fca8b", "#e58fb1", "#b79ae6", "#e3cf5f", "#6fc9cf", "#d29a7a"];
const by_holder = checkpoint.by_rank ? "by rank" : "by file";
const holder_word = checkpoint.by_rank ? "rank" : "file";

// The dtypes, the one with the most bytes first.
const dtypes = new Map();
for (const {dtype, bytes} of checkpoint.tensors) dtypes.set(dtype, (dtypes.get(dtype) ?? 0) + bytes);
const dtype_order = [...dtypes.keys()].sort((a, b) => dtypes.get(b) - dtypes.get(a));
const dtype_color = (dtype) => dtype_colors[dtype_order.indexOf(dtype) % dtype_colors.length];

const all_bytes = sum(checkpoint.tensors.map((tensor) => tensor.bytes));
let shown_tensors = checkpoint.tensors, path = [];
let view = page_state.get("view") === "holders" ? by_holder : "by module";

function holders_text(tensor) {
  const holders = [...tensor.held.keys()];
  if (!checkpoint.by_rank) return holders.length === 1 ? shown(holders[0].name, 60) : plural(holders.length, "file");
  return ranges(holders.map((holder) => holder.id).filter((id) => id !== "nowhere").sort((a, b) => a - b)) || "none";
}

// The lines of a tensor's tooltip: its facts, and the bytes of at most eight holders.
function lines_of(tensor) {
  const held = [...tensor.held].sort(([a], [b]) => checkpoint.holders.indexOf(a) - checkpoint.holders.indexOf(b));
  const lines = held.slice(0, 8).map(([holder, bytes]) => `${shown(holder.name, 80)}: ${human_bytes(Math.round(bytes))} (${percent(bytes, tensor.bytes)})`);
  if (held.length > 8) lines.push(`and ${held.length - 8} more`);
  return [shown_key(tensor.key), `${tensor.dtype} ${shape_text(tensor.shape)}, ${human_bytes(tensor.bytes)} (${percent(tensor.bytes, all_bytes)} of all)`, ...lines];
}

function lines_of_node(node) {
  if (node.entry) return lines_of(node.entry);
  return [shown(node.name), `${human_bytes(Math.round(node.bytes))} (${percent(node.bytes, all_bytes)}) in ${plural(node.tensors, "tensor")}`,
    ...(node.is_gathered ? ["too small to draw one by one: open it"] : [])];
}

// Shows the facts, the map, and the holders of the chosen tensor.
const detail = card("No tensor", {id: "detail"});
function show_detail(chosen) {
  const facts = [["key", shown_key(chosen.key, 2000)], ["dtype", chosen.dtype], ["shape", shape_text(chosen.shape)],
    ["bytes", `${exact(chosen.bytes)} (${human_bytes(chosen.bytes)})`], ["stored", `${exact(chosen.stored)} in ${plural(chosen.chunks.length, "chunk")}`]];
  const map = make_box_map(chosen.shape, chosen.chunks, {
    label: (parts) => checkpoint.by_rank ? ranges([...new Set(parts.map((part) => part.holder.id))].sort((a, b) => a - b)) : [...new Set(parts.map((part) => part.holder.short))].join(","),
    color: (parts) => parts[0].holder.color,
    hover: (box) => [interval(box), ...box.parts.slice(0, 8).map((part) => part.file === null ? "in no file"
      : `${shown(part.file, 100)}: ${plural(part.length, "byte")} from ${exact(part.offset)}`)],
  });
  const held = [...chosen.held].map(([holder, bytes]) => ({name: holder.name, bytes: Math.round(bytes), color: holder.color}));
  detail.replaceChildren(element("div", {class: "head"}, element("h2", {}, "Who holds it")),
    element("dl", {class: "facts"}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {class: name === "key" ? "mono" : ""}, value)])),
    map, make_bars(held, (item) => [shown(item.name), plural(item.bytes, "byte")]));
}

function choose(tensor) {
  page_state.set("tensor", tensor.key);
  table.mark(tensor);
  treemap.mark(tensor);
  show_detail(tensor);
}

// The treemap, and the path of the groups that were opened in it, as buttons that go back.
const treemap = make_treemap("bytes of tensors", {
  paint: (node) => holder_of(node)?.color ?? dtype_color(first_tensor(node).dtype),
  open: (node) => { path.push(node); show_path(); },
  choose: (entry) => choose(entry),
  hover: lines_of_node,
});
const crumbs = element("nav", {class: "crumbs", "aria-label": "opened groups"});
const legend = element("div", {class: "legend"});

// A group that is drawn as one tile has the colour of its first tensor.
const first_child = (node) => node.children.values().next().value;
const holder_of = (node) => node.holder ?? (node.is_gathered ? first_child(node).holder : undefined);
function first_tensor(node) {
  let at = node;
  while (at.children) at = first_child(at);
  return at.entry;
}

function show_path() {
  crumbs.replaceChildren(...path.flatMap((node, i) => [i === 0 ? "" : "›",
    element("button", {type: "button", onclick: () => { path.length = i + 1; show_path(); }}, shown(node.name, 80))]));
  treemap.show(path[path.length - 1]);
}

function show_treemap() {
  const root = view === by_holder ? group_by_holder(title, checkpoint, shown_tensors)
    : group_by_module(title, shown_tensors.map((tensor) => ({key: tensor.key, bytes: tensor.bytes, entry: tensor})));
  path = [root];
  const most = 24, more = view === by_holder ? checkpoint.holders.length - most : 0;
  const colors = view === by_holder ? checkpoint.holders.slice(0, most).map((holder) => [holder.name, holder.color])
    : dtype_order.map((dtype) => [`${dtype} (${human_bytes(dtypes.get(dtype))})`, dtype_color(dtype)]);
  legend.replaceChildren(...colors.map(([name, color]) => {
    const swatch = element("span", {class: "swatch"});
    swatch.style.background = color;
    return element("span", {}, swatch, shown(name, 60));
  }), more > 0 ? `and ${exact(more)} more` : "");
  show_path();
}

const table = make_table("tensors", [
  {title: "key", width: "minmax(120px, 3fr)", key: true, text: (t) => shown_key(t.key), value: (t) => t.key},
  {title: "dtype", width: "minmax(72px, 0.7fr)", text: (t) => t.dtype, value: (t) => t.dtype},
  {title: "shape", width: "minmax(80px, 1fr)", text: (t) => shape_text(t.shape), value: (t) => volume(t.shape), optional: true},
  {title: "chunks", width: "80px", number: true, text: (t) => exact(t.chunks.length), value: (t) => t.chunks.length, optional: true},
  {title: checkpoint.by_rank ? "ranks" : "files", width: "minmax(80px, 1fr)", text: holders_text, value: (t) => t.held.size, optional: true, tail: true},
  {title: "bytes", width: "minmax(92px, 0.8fr)", number: true, text: (t) => exact(t.bytes), value: (t) => t.bytes},
], {hover: lines_of, choose});

const found = element("span", {class: "soft", id: "found"});
function search(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  shown_tensors = wanted.length === 0 ? checkpoint.tensors : checkpoint.tensors.filter((tensor) => {
    const text = `${tensor.key} ${tensor.dtype} ${shape_text(tensor.shape)}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  found.textContent = `${plural(shown_tensors.length, "tensor")}, ${human_bytes(sum(shown_tensors.map((tensor) => tensor.bytes)))}`;
  page_state.set("search", words);
  table.show(shown_tensors);
  show_treemap();
}
let typed = 0;
const box = element("input", {type: "search", placeholder: "search keys, dtypes, shapes", "aria-label": "search", oninput: () => {
  clearTimeout(typed);
  typed = setTimeout(() => search(box.value), 120);
}});
box.value = page_state.get("search");

// The objects, which are not tensors.
const objects = Object.entries(data.objects).map(([key, {kind, type, value}]) => ({key, kind, type, value: value_text(value)}));
function value_text(value) {
  try {
    return JSON.stringify(value);
  } catch (problem) {
    return `nested too deeply to show (${problem.name})`;
  }
}
const object_columns = [["key", "minmax(140px, 2fr)"], ["kind", "minmax(70px, 0.6fr)"], ["value", "minmax(100px, 2fr)"]];
const object_table = make_table("objects", object_columns.map(([name, width]) =>
  ({title: name, width, key: name === "key", code: name === "value", text: (row) => shown_key(row[name]), value: (row) => row[name]})),
{hover: (row) => [shown(row.key), shown(row.type), shown(row.value, 1500)], choose: () => {}});

const rows_of = (pairs) => element("dl", {class: "facts"}, ...pairs.flatMap(([name, value]) =>
  [element("dt", {class: "mono"}, shown(name, 100)), element("dd", {}, shown(value, 600))]));
const metadata = Object.entries(data.metadata ?? {}).map(([key, value]) => [key, typeof value === "string" ? value : value_text(value)]);
const doubtful = data.globals.filter((name) => !name.harmless);
const problems = (data.problems ?? []).map((problem) => problem.text);
const chunks = sum(checkpoint.tensors.map((tensor) => tensor.chunks.length)), stored = sum(checkpoint.tensors.map((tensor) => tensor.stored));

document.getElementById("kind").textContent = `${data.format} ${data.version ?? ""}`;
document.getElementById("page").replaceChildren(...[
  element("dl", {class: "figures whole"},
    figure("tensors", exact(checkpoint.tensors.length), `in ${plural(chunks, "chunk")}`, checkpoint.tensors.length),
    figure("bytes of tensors", human_bytes(all_bytes), plural(all_bytes, "byte"), all_bytes),
    figure("bytes stored", human_bytes(stored), `${plural(stored, "byte")} in files`, stored),
    figure("objects", exact(objects.length), "that are not tensors", objects.length),
    figure("files", exact(Object.keys(data.files).length), checkpoint.by_rank ? `of ${plural(checkpoint.holders.length, "rank")}` : "", Object.keys(data.files).length)),
  problems.length > 0 && element("section", {class: "card problems whole"}, element("h2", {}, "Problems"),
    element("ul", {}, ...listed(problems, 200, (text) => shown(text, 1000), data.more_problems))),
  doubtful.length > 0 && element("section", {class: "card problems whole"},
    element("h2", {}, "Names in pickles beside plain data: Python would look them up, and may call them"),
    element("ul", {class: "mono"}, ...listed(doubtful, 200, (name) => `${shown(name.name)} (${shown(name.file)}${name.key ? `: ${shown(name.key)}` : ""})`))),
  card("Map of bytes", {controls: [choice(["by module", by_holder], view, (name) => {
    view = name;
    page_state.set("view", name === by_holder ? "holders" : "");
    show_treemap();
  })]}, crumbs, treemap.area, legend),
  card(`Bytes per ${holder_word}`, {}, make_bars(checkpoint.holders.map((holder) => ({...holder, bytes: Math.round(holder.bytes)})),
    (holder) => [shown(holder.name), `${plural(holder.bytes, "byte")} of tensors`, `${plural(holder.stored, "byte")} stored in ${plural(holder.chunks, "chunk")} of ${plural(holder.tensors, "tensor")}`], "no files")),
  card("Tensors", {controls: [found, box]}, table.table),
  detail,
  objects.length > 0 && card("Objects", {class: "card whole"}, object_table.table),
  metadata.length > 0 && card("Texts of the files", {class: "card whole"}, rows_of(metadata.length > 200 ? [...metadata.slice(0, 200), [`and ${metadata.length - 200} more`, ""]] : metadata)),
].filter(Boolean));

theme_switch(() => {});
search(box.value);
object_table.show(objects);
const linked = checkpoint.tensors.find((tensor) => tensor.key === page_state.get("tensor"));
const largest = checkpoint.tensors.reduce((most, tensor) => (most && most.bytes >= tensor.bytes ? most : tensor), null);
if (linked) choose(linked); else if (largest) show_detail(largest);
