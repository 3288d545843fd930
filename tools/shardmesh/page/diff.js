// SPDX-License-Identifier: Apache-2.0
// The page of a comparison of two checkpoints.
const data = JSON.parse(document.getElementById("data").textContent);
const kind_words = {"only-left": "only on the left", "only-right": "only on the right", kind: "kind of entry", dtype: "dtype", shape: "shape",
  values: "values", object: "object", layout: "chunks", unreadable: "unreadable"};
const word_of = (kind) => kind_words[kind] ?? kind;
const differences = data.differences.map((one) => ({...one, what: word_of(one.kind)}));
const kinds = Object.keys(kind_words).filter((kind) => data.kinds[kind] > 0);
const count_of = (...names) => sum(names.map((name) => data.kinds[name] ?? 0));
const all = differences.length + data.more_differences;

// The document has infinite and NaN differences as text.
const largest_of = (one) => one.kind !== "values" || !(one.elements > 0) ? -1 : /nan|inf/.test(one.largest_difference) ? Infinity : Number(one.largest_difference);
const share_text = (one) => one.elements > 0 ? `${exact(one.different)} of ${exact(one.elements)}` : "";
const largest_text = (one) => one.elements > 0 ? one.largest_difference : "";
const lines_of = (one) => [shown_key(one.key), one.what, shown(one.text, 1500)];

const table = make_table("differences", [
  {title: "key", width: "minmax(120px, 3fr)", key: true, text: (d) => shown_key(d.key), value: (d) => d.key},
  {title: "difference", width: "minmax(110px, 1fr)", text: (d) => d.what, value: (d) => d.what},
  {title: "left and right", width: "minmax(120px, 3fr)", text: (d) => shown(d.text, 600), value: (d) => d.text, optional: true},
  {title: "elements", width: "minmax(100px, 1fr)", number: true, text: share_text, value: (d) => d.different ?? -1, optional: true},
  {title: "largest difference", width: "minmax(100px, 1fr)", number: true, text: largest_text, value: largest_of, optional: true},
], {hover: lines_of, choose: (one) => choose(one)});

// Shows the chosen difference in full.
const detail = card("No difference", {id: "detail"});
function choose(one) {
  const facts = [["key", shown_key(one.key, 2000)], ["difference", one.what], ["left and right", shown(one.text, 4000)]];
  if (one.elements > 0) facts.push(["elements", `${share_text(one)} differ (${percent(one.different, one.elements)})`],
    ["first at", shape_text(one.first_index)], ["largest", one.largest_difference]);
  table.mark(one);
  detail.replaceChildren(element("div", {class: "head"}, element("h2", {}, "Chosen difference")),
    element("dl", {class: "facts"}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {class: name === "key" ? "mono" : ""}, value)])));
}

const found = element("span", {class: "soft", id: "found"});
let kind = kinds.includes(page_state.get("kind")) ? page_state.get("kind") : "";
function show() {
  const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const some = differences.filter((one) => (kind === "" || one.kind === kind) &&
    wanted.every((word) => `${one.key} ${one.what} ${one.text}`.toLowerCase().includes(word)));
  found.textContent = `${plural(some.length, "difference")}${data.more_differences > 0 ? ` of the ${exact(differences.length)} listed` : ""}`;
  page_state.set("search", box.value);
  page_state.set("kind", kind);
  table.show(some);
}
let typed = 0;
const box = element("input", {type: "search", placeholder: "search keys and texts", "aria-label": "search", oninput: () => {
  clearTimeout(typed);
  typed = setTimeout(show, 120);
}});
box.value = page_state.get("search");
const choices = new Map([[`all (${exact(all)})`, ""], ...kinds.map((one) => [`${word_of(one)} (${exact(data.kinds[one])})`, one])]);
const pressed = [...choices.keys()].find((name) => choices.get(name) === kind);

const unread = ["left", "right"].map((side, at) => data.unread_tensors[at] > 0 && `${plural(data.unread_tensors[at], "tensor")} on the ${side}`).filter(Boolean);
const cut = data.more_differences > 0 && `This page lists ${exact(differences.length)} of ${plural(all, "difference")}. It leaves out ${plural(data.more_differences, "difference")}: pass --limit 0 to list all.`;
const verdict = data.equal === true ? "equal" : data.equal === null ? "unknown" : "different";

document.getElementById("kind").textContent = "diff";
document.getElementById("page").replaceChildren(...[
  element("dl", {class: "figures whole"},
    figure("the checkpoints are", verdict, verdict === "unknown" ? "some entries cannot be read" : ""),
    figure("keys that differ", exact(data.differing_keys), plural(all, "difference"), data.differing_keys),
    figure("only on the left", exact(count_of("only-left")), "keys", count_of("only-left")),
    figure("only on the right", exact(count_of("only-right")), "keys", count_of("only-right")),
    figure("compared tensors", exact(data.tensors), human_bytes(data.bytes), data.tensors),
    figure("compared objects", exact(data.objects), "that are not tensors", data.objects)),
  element("dl", {class: "facts whole", id: "sides"}, ...["left", "right"].flatMap((side) =>
    [element("dt", {}, side), element("dd", {class: "mono"}, shown(data[side], 1000))])),
  cut && element("p", {class: "card problems whole", id: "cut"}, cut),
  unread.length > 0 && element("p", {class: "card problems whole", id: "unread"}, `Not read, so not compared: ${unread.join(" and ")}.`),
  data.problems.length > 0 && element("section", {class: "card problems whole"}, element("h2", {}, "Problems"),
    element("ul", {}, ...listed(data.problems, 200, (problem) => shown(problem.text, 1000), data.more_problems))),
  card("Differences", {controls: [found, box]}, choice([...choices.keys()], pressed, (name) => { kind = choices.get(name); show(); }), table.table),
  detail,
  data.notes.length > 0 && card("Notes", {class: "card whole"}, element("ul", {class: "notes"}, ...listed(data.notes, 200, (note) => shown(note, 1000), data.more_notes ?? 0))),
].filter(Boolean));

theme_switch(() => {});
show();
if (differences.length > 0) choose(differences[0]);
