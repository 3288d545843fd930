// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.state_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.torch_file;

namespace shardmesh::detail {
namespace {

// An object, or the index of a tensor, at a path of the state dict.
struct placed_value {
  std::optional<std::size_t> tensor;
  local_state_object object;
};

// `listed`: the replacement for the stored object, if any.
result<local_state_object> read_object(checkpoint_reader& reader, std::size_t index,
                                       const std::optional<object_value>& listed) {
  const object_entry& entry = reader.contents().objects[index];
  const auto read = [&]() -> result<local_state_object> {
    SHARDMESH_TRY(const std::vector<std::byte> archive,
                  listed ? torch_file::archive_from_json(listed->json) : reader.object_archive(index));
    return torch_file::object_of_archive(archive);
  };
  auto object = read();
  if (object) return object;
  error cause = std::move(object).error().with_key(entry.key);
  if (cause.file.empty()) cause.file = printable_url(reader.path().string());
  if (cause.hint.empty()) cause.hint = "set objects = false to read only tensors";
  return cause;
}

// Builds the tree of the paths, and replaces leaves that are containers of plain values by these containers. No
// recursion.
class grafting {
 public:
  explicit grafting(std::vector<placed_value>& values) : values_(values) {}

  result<tree_spec> graft(const unflattened& tree, std::vector<outlined_leaf>& leaves) {
    leaves_ = &leaves;
    add(tree.spec, [&](std::size_t leaf, std::optional<path_key> key) {
      const std::size_t value = tree.leaf_order[leaf];
      if (value == unflattened::hole) return add_leaf({}, std::move(key));
      placed_value& one = values_[value];
      if (one.tensor) return add_leaf({one.tensor, {}}, std::move(key));
      if (one.object.form.nodes().empty()) return add_leaf({{}, std::move(one.object.leaves.front())}, std::move(key));
      add(
          one.object.form,
          [&](std::size_t inner, std::optional<path_key> inner_key) {
            add_leaf({{}, std::move(one.object.leaves[inner])}, std::move(inner_key));
          },
          std::move(key));
    });
    return builder_.finish();
  }

 private:
  // Adds every node of `spec` from the root down, its root under `key`; `on_leaf(number, key)` adds the leaves.
  template <class OnLeaf>
  void add(const tree_spec& spec, OnLeaf&& on_leaf, std::optional<path_key> root_key = {}) {
    struct open_node {
      std::vector<std::size_t> children;
      std::size_t next = 0;
      bool is_mapping = false;
    };
    std::vector<open_node> open;
    std::size_t leaf = 0;
    const auto enter = [&](std::size_t node, std::optional<path_key> key) {
      const node_kind kind = spec.nodes()[node].kind;
      if (kind == node_kind::leaf) return on_leaf(leaf++, std::move(key));
      if (key) builder_.key(*std::move(key));
      builder_.begin(kind);
      open.push_back({spec.children(node), 0, kind == node_kind::mapping});
    };
    enter(spec.nodes().size() - 1, std::move(root_key));
    while (!open.empty()) {
      open_node& now = open.back();
      if (now.next == now.children.size()) {
        builder_.end();
        open.pop_back();
        continue;
      }
      const std::size_t child = now.children[now.next++];
      enter(child, now.is_mapping ? std::optional(spec.keys()[child]) : std::nullopt);
    }
  }

  void add_leaf(outlined_leaf leaf, std::optional<path_key> key) {
    if (key) builder_.key(*std::move(key));
    builder_.leaf();
    leaves_->push_back(std::move(leaf));
  }

  std::vector<placed_value>& values_;
  std::vector<outlined_leaf>* leaves_ = nullptr;
  tree_builder builder_;
};

}  // namespace

result<opened_state> opened_state::open(checkpoint_reader& reader) {
  opened_state made;
  SHARDMESH_TRY(made.split_, torch_file::split_objects(reader));
  made.reader_ = made.split_ ? made.split_.get() : &reader;
  // Without the entries that could not be read, the state dict would look complete.
  if (!made.reader_->problems().empty()) return made.reader_->problems().front();
  return made;
}

result<state_outline> outline_of(checkpoint_reader& reader, const read_state_options& options) {
  const call_scope limits(options.loading().call().named("load"));
  const catalog& contents = reader.contents();
  std::vector<selectable> candidates;
  for (const tensor_entry& tensor : contents.tensors) candidates.push_back({tensor.key, tensor.type, true});
  if (options.objects)
    for (const object_entry& object : contents.objects) candidates.push_back({object.key, dtype::undefined, false});
  selection_result chosen = select_keys(candidates, options.selection);
  if (!chosen.errors.empty()) return std::move(chosen.errors.front()).with_file(reader.path().string());
  state_outline made;
  made.notes = std::move(chosen.notes);
  std::vector<placed_value> values;
  std::vector<path> paths;
  const auto path_of = [](const auto& entry, std::string& name) {
    return name == entry.key ? entry.where : path{std::move(name)};
  };
  for (selected& one : chosen.kept) {
    if (one.index < contents.tensors.size()) {
      const tensor_entry& tensor = contents.tensors[one.index];
      values.push_back({made.tensors.size(), {}});
      paths.push_back(path_of(tensor, one.key));
      made.tensors.push_back({tensor.key, paths.back(), one.type, tensor.shape, std::nullopt});
    } else {
      const std::size_t index = one.index - contents.tensors.size();
      SHARDMESH_TRY(const auto listed, renamed_parameter_list(reader, index, chosen.lists, one.index));
      SHARDMESH_TRY(local_state_object object, read_object(reader, index, listed));
      values.push_back({std::nullopt, std::move(object)});
      paths.push_back(path_of(contents.objects[index], one.key));
    }
  }
  auto tree = unflatten(paths, {.max_holes = std::int64_t{1} << 20});
  if (!tree) return std::move(tree).error().with_file(reader.path().string());
  SHARDMESH_TRY(made.spec, grafting(values).graft(*tree, made.leaves));
  return made;
}

result<void> place(state_outline& outline, const device_mesh& mesh, std::span<const placement_rule> rules,
                   std::int32_t rank, const placement_options& placing) {
  if (!mesh.coordinate_of(rank))
    return fail(errc::invalid_argument, fmt::format("the rank is not in the mesh {}", to_string(mesh))).with_rank(rank);
  std::vector<keyed_shape> tensors;
  for (const outlined_tensor& one : outline.tensors) tensors.push_back({one.key, one.shape});
  placement_resolution resolved = resolve_placements(tensors, mesh, rules, placing);
  if (!resolved.ok()) return std::move(resolved.errors.front());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    outlined_tensor& one = outline.tensors[i];
    auto made = stored_layout(mesh, std::move(resolved.placements[i]), one.shape);
    if (!made) return std::move(made).error().with_key(one.key);
    one.placed = *std::move(made);
  }
  return {};
}

extents local_shape(const outlined_tensor& tensor, std::int32_t rank) {
  return tensor.placed ? tensor.placed->local_shape(rank) : tensor.shape;
}

result<std::vector<load_request>> requests_of(const checkpoint_reader& reader, std::string_view key,
                                              const layout& placed, std::int32_t rank, const tensor_view* local) {
  const tensor_entry* const stored = reader.contents().find(key);
  if (!stored) return no_such_entry(reader, key, entry_kind::tensor);
  const auto named = [&](error cause) {
    return std::move(cause).with_file(reader.path().string()).with_key(key).with_rank(rank);
  };
  if (placed.shape() != stored->shape)
    return named(fail(errc::shape_mismatch, "the dtensor to load into has another global shape than the stored tensor")
                     .with_values(to_string(stored->shape), to_string(placed.shape())));
  if (placed.reduction() != reduce_op::none)
    return named(fail(errc::unsupported, "a checkpoint holds values, not the terms of a Partial"));
  std::vector<load_request> requests;
  if (!local) return requests;
  const box all = box::whole(stored->shape);
  for (const placed_box& part : placed.boxes(rank)) {
    if (part.where == all) {
      requests.push_back({std::string(key), all, *local});
      continue;
    }
    if (bits(local->type) % 8 != 0)
      return named(fail(errc::unaligned, fmt::format("{} cannot be cut", name(local->type))).with_box(part.where));
    requests.push_back({std::string(key), part.where, subview(*local, {part.local_offsets, part.where.sizes})});
  }
  return requests;
}

result<void> fill(checkpoint_reader& reader, const state_outline& outline, std::int32_t rank,
                  std::span<const tensor_view> views, const read_state_options& options) {
  std::vector<load_request> requests;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const outlined_tensor& one = outline.tensors[i];
    if (!one.placed) {
      requests.push_back({one.key, box::whole(one.shape), views[i]});
      continue;
    }
    SHARDMESH_TRY(std::vector<load_request> parts, requests_of(reader, one.key, *one.placed, rank, &views[i]));
    for (load_request& part : parts) requests.push_back(std::move(part));
  }
  load_options how = options.loading();
  how.allow_narrowing = true;  // the only casts are those of the selection
  SHARDMESH_TRY(load_report loaded, load(reader, requests, how));
  if (options.report) {
    std::vector<std::string> notes = reader.notes();
    notes.insert(notes.end(), outline.notes.begin(), outline.notes.end());
    options.report({std::move(loaded.casts), std::move(notes)});
  }
  return {};
}

}  // namespace shardmesh::detail
