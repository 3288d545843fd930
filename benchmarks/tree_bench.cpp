// SPDX-License-Identifier: Apache-2.0
// Our side of `./dev bench tree`: flattens and unflattens a nested state dict, N times in one process, as one line of
// JSON. Links only shardmesh::tree.
//   shardmesh_tree_bench names_flatten|names_unflatten|leaves_flatten|leaves_unflatten --entries N --repeat N
// names_*:  as torch.distributed.checkpoint: a name and a path per entry, and the tree again from the paths.
// leaves_*: as optree: the shape and the leaves in order, and the tree again from them.
// Flattening returns pointers to leaves; unflattening copies them (one reference count each, as in Python).
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.tree;

namespace {

using namespace shardmesh;

// A state dict as in a program; leaves are shared, like Python's.
struct entry;
struct value;
using tensor = std::shared_ptr<const float>;
using dict = std::vector<entry>;
using list = std::vector<value>;
struct value {
  std::variant<tensor, dict, list> is;
};
struct entry {
  std::string name;
  value held;
};

}  // namespace

template <>
struct shardmesh::node_adapter<value> {
  static node_kind kind(const value& v) {
    constexpr node_kind kinds[] = {node_kind::leaf, node_kind::mapping, node_kind::sequence};
    return kinds[v.is.index()];
  }
  template <class N, class Visit>
  static void children(N& v, Visit&& visit) {
    std::int64_t i = 0;
    if (auto* d = std::get_if<dict>(&v.is)) {
      for (auto& [name, child] : *d)
        if (!visit(name, child)) return;
    } else if (auto* l = std::get_if<list>(&v.is)) {
      for (auto& child : *l)
        if (!visit(i++, child)) return;
    }
  }
  static value make(node_kind kind, std::vector<std::pair<path_key, value>> children) {
    if (kind == node_kind::mapping) {
      dict made;
      made.reserve(children.size());
      for (auto& [key, child] : children) made.push_back({std::string(key.name()), std::move(child)});
      return {std::move(made)};
    }
    list made;
    made.reserve(children.size());
    for (auto& [key, child] : children) made.push_back(std::move(child));
    return {std::move(made)};
  }
};

namespace {

// {"layers": [{"block0": {"weight": .., ..}, ..}, ..]}, as in tree_side.py.
value model(int entries) {
  static const char* const names[] = {"weight", "bias", "running_mean",    "running_var", "num_batches_tracked",
                                      "scale",  "gate", "qkv_proj.weight", "zero_point",  "norm"};
  list layers;
  for (int layer = 0; layer < entries / 100; ++layer) {
    dict blocks;
    for (int b = 0; b < 10; ++b) {
      dict block;
      for (const char* name : names) block.push_back({name, value{std::make_shared<const float>(1.0F)}});
      blocks.push_back({"block" + std::to_string(b), value{std::move(block)}});
    }
    layers.push_back({std::move(blocks)});
  }
  dict root;
  root.push_back({"layers", value{std::move(layers)}});
  return {std::move(root)};
}

double seconds(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<value> copies(const std::vector<const value*>& leaves) {
  std::vector<value> made;
  made.reserve(leaves.size());
  for (const value* leaf : leaves) made.push_back(*leaf);
  return made;
}

struct named_state {
  std::vector<named_item> items;
  std::vector<const value*> values;
};

named_state with_names(const value& root) {
  auto flat = flatten_tree(root).value();
  const std::vector<std::uint8_t> is_tensor(flat.leaves.size(), 1);
  return {flatten(flat.spec, is_tensor, key_policy::torch_dcp).value(), std::move(flat.leaves)};
}

value from_names(const named_state& named) {
  const auto made = unflatten(named.items).value();
  std::vector<value> leaves;
  leaves.reserve(named.values.size());
  for (const std::size_t from : made.leaf_order) leaves.push_back(*named.values[from]);
  return build(made.spec, std::move(leaves)).value();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  int entries = 100'000, repeat = 5;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--entries") entries = std::atoi(argv[i + 1]);
    if (std::string_view(argv[i]) == "--repeat") repeat = std::atoi(argv[i + 1]);
  }
  const value root = model(entries);
  const auto flat = flatten_tree(root).value();
  const named_state named = with_names(root);
  std::function<void()> act;  // the time includes destroying its result, as Python's includes garbage
  if (what == "names_flatten") act = [&] { with_names(root); };
  if (what == "names_unflatten") act = [&] { from_names(named); };
  if (what == "leaves_flatten") act = [&] { flatten_tree(root).value(); };
  if (what == "leaves_unflatten") act = [&] { build(flat.spec, copies(flat.leaves)).value(); };
  if (!act) return std::fprintf(stderr, "shardmesh_tree_bench: no such case\n"), 2;
  act();  // once to warm up, like the peers
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) times.push_back(seconds(act));
  std::printf("{\"case\": \"%s\", \"entries\": %zu, \"seconds\": [", argv[1], flat.leaves.size());
  for (std::size_t i = 0; i < times.size(); ++i) std::printf("%s%.9f", i ? ", " : "", times[i]);
  std::printf("]}\n");
}
