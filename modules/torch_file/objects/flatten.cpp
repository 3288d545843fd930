// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.torch_file;

import :key_steps;
import :object_parts;
import :wrapper_form;

namespace shardmesh::torch_file {
namespace {

class walker {
 public:
  walker(const torch_file::item& item, const flatten_options& options)
      : item_(item), options_(options), most_entries_(most_entries(item, options)) {}
  result<void> enter(const pickle::value& mapping);
  result<void> visit(const pickle::value& value);
  std::vector<flat_entry> entries;

 private:
  result<bool> is_leaf(const pickle::value& value, std::size_t depth);
  bool is_description(const pickle::value& value) const;
  result<void> add(const pickle::value& value);
  result<void> check_step(std::size_t depth);
  bool is_tensor(const pickle::value& value) const {
    return item_.tensor_of(value).has_value() || item_.is_opaque_tensor(value);
  }

  const item& item_;
  const flatten_options& options_;
  std::size_t most_entries_;
  path path_;
  std::unordered_map<std::uint64_t, bool> leaves_;  // results of is_leaf for containers
  std::unordered_set<std::uint64_t> in_question_, open_;
  std::unordered_set<std::string> names_;
  std::size_t path_bytes_ = 0, key_bytes_ = 0, steps_ = 0;
};

result<void> walker::check_step(std::size_t depth) {
  if (depth > options_.max_depth)
    return fail(errc::unsupported,
                fmt::format("the state dict is nested deeper than {} levels, or contains itself", options_.max_depth));
  // Shared references can make a small file take forever without producing an entry.
  if (++steps_ / 16 > most_entries_)
    return fail(errc::unsupported, fmt::format("the state dict has more than {} entries", most_entries_));
  return {};
}

// Whether every key has a known Python str().
bool has_text_keys(const pickle::value& mapping) {
  for (const pickle::pair pair : mapping_entries(mapping).pairs())
    if (!has_name(pair.key)) return false;
  return true;
}

/// PyTorch's `_is_terminal`. Results are cached, so shared containers are examined once.
result<bool> walker::is_leaf(const pickle::value& value, std::size_t depth) {
  const bool mapping = is_mapping(value);
  if (!mapping && value.kind() != pickle::kind::list) return true;
  if (const auto known = leaves_.find(value.identity()); known != leaves_.end()) return known->second;
  if (mapping && !has_text_keys(value)) return leaves_.emplace(value.identity(), true), true;
  if (mapping && options_.policy == key_policy::torch_dcp) return leaves_.emplace(value.identity(), false), false;
  // A value nested this deeply, or inside itself, stays one object. `take_apart` finds its tensors.
  if (depth > options_.max_depth || !in_question_.insert(value.identity()).second) return true;
  SHARDMESH_TRY(check_step(depth));
  bool leaf = true;
  const auto examine = [&](const pickle::value& part) -> result<void> {
    if (is_tensor(part)) return leaf = false, result<void>{};
    SHARDMESH_TRY(const bool below, is_leaf(part, depth + 1));
    leaf = leaf && below;
    return {};
  };
  if (mapping) {
    for (const pickle::pair pair : mapping_entries(value).pairs()) {
      if (!leaf) break;
      SHARDMESH_TRY(examine(pair.value));
    }
  } else {
    for (const pickle::value part : value.items()) {
      if (!leaf) break;
      SHARDMESH_TRY(examine(part));
    }
  }
  in_question_.erase(value.identity());
  leaves_.emplace(value.identity(), leaf);
  return leaf;
}

result<void> walker::add(const pickle::value& value) {
  flat_entry entry{path_, dotted(path_), value, item_.tensor_of(value)};
  path_bytes_ += 2 * entry.fqn.size() + path_.size() * sizeof(path_key);
  if (entries.size() >= most_entries_ || path_bytes_ > options_.max_path_bytes)
    return fail(errc::unsupported,
                fmt::format("the state dict has more than {} entries, or names of more than {} bytes", most_entries_,
                            options_.max_path_bytes));
  if (!names_.insert(entry.fqn).second)
    return fail(errc::duplicate_key, "two entries of the state dict flatten to one name").with_key(entry.fqn);
  entries.push_back(std::move(entry));
  return {};
}

result<void> walker::enter(const pickle::value& mapping) {
  SHARDMESH_TRY(check_step(path_.size()));
  open_.insert(mapping.identity());
  const pickle::pairs pairs = mapping_entries(mapping).pairs();
  if (pairs.empty() && options_.keep_empty && !path_.empty()) SHARDMESH_TRY(add(mapping));
  key_steps steps(pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    path_.push_back(steps.next(pairs[i].key).value_or(steps.position(i)));
    if (path_.back().is_python()) key_bytes_ += path_.back().pickled().size();
    if (key_bytes_ > most_key_bytes_of(item_))
      return fail(errc::unsupported, "its dicts have keys that share more than the file explains");
    SHARDMESH_TRY(visit(pairs[i].value));
    path_.pop_back();
  }
  open_.erase(mapping.identity());
  return {};
}

bool walker::is_description(const pickle::value& value) const {
  if (!options_.keep_descriptions || path_.empty() || path_.back().is_index()) return false;
  const std::string_view name = path_.back().name();
  return (name == "wrapper" || name.ends_with(".wrapper")) && is_wrapper_description(value) && read_wrapper_form(value);
}

result<void> walker::visit(const pickle::value& value) {
  if (is_description(value)) return add(value);
  SHARDMESH_TRY(const bool leaf, is_leaf(value, path_.size()));
  // A value inside itself stays one object at that place. `take_apart` finds its tensors.
  if (leaf || open_.contains(value.identity())) return add(value);
  if (is_mapping(value)) return enter(value);
  SHARDMESH_TRY(check_step(path_.size()));
  open_.insert(value.identity());
  const pickle::items items = value.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    path_.push_back(static_cast<std::int64_t>(i));
    SHARDMESH_TRY(visit(items[i]));
    path_.pop_back();
  }
  open_.erase(value.identity());
  return {};
}

}  // namespace

result<std::vector<flat_entry>> flatten_state_dict(const torch_file::item& item, const pickle::value& root,
                                                   const flatten_options& options) {
  if (options.policy == key_policy::typed)
    return fail(errc::invalid_argument, "a pickled state dict is flattened by one of PyTorch's rules")
        .with_values("key_policy::torch_dcp or key_policy::torch_dcp_2_3", "key_policy::typed");
  if (options.may_be_list && root.kind() == pickle::kind::list) {
    walker made(item, options);
    SHARDMESH_TRY(made.visit(root));
    return std::move(made.entries);
  }
  if (!is_mapping(root))
    return fail(errc::bad_format, fmt::format("a state dict is expected, not a {}", classify(item, root).type));
  walker made(item, options);  // the root is entered whatever its keys are
  SHARDMESH_TRY(made.enter(root));
  return std::move(made.entries);
}

}  // namespace shardmesh::torch_file
