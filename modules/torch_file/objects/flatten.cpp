// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

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
import :python_keys;
import :wrapper_form;

namespace shardmesh::torch_file {
namespace {

// Walks the containers of a state dict. A level of nesting is a call of `enter` or `visit`. They return false after a
// failure, which is in `problem`: a result in each of their frames would take hundreds of bytes of stack.
class walker {
 public:
  walker(const torch_file::item& item, const flatten_options& options)
      : item_(item), options_(options), most_entries_(most_entries(item, options)) {}
  bool enter(const pickle::value& mapping);
  bool visit(const pickle::value& value);
  std::vector<flat_entry> entries;
  std::optional<error> problem;

 private:
  std::optional<bool> is_leaf(const pickle::value& value, std::size_t depth);  // none after a failure
  bool is_description(const pickle::value& value) const;
  bool add(const pickle::value& value);
  bool check_step(std::size_t depth);
  bool stop(errc code, std::string message);
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

bool walker::stop(errc code, std::string message) {
  problem = fail(code, std::move(message));
  return false;
}

bool walker::check_step(std::size_t depth) {
  if (depth > options_.max_depth)
    return stop(errc::unsupported,
                fmt::format("the state dict is nested deeper than {} levels, or contains itself", options_.max_depth));
  // Shared references can make a small file take forever without producing an entry.
  if (++steps_ / 16 > most_entries_)
    return stop(errc::unsupported, fmt::format("the state dict has more than {} entries", most_entries_));
  return true;
}

// Whether every key has a known Python str().
bool has_text_keys(const pickle::value& mapping) {
  for (const pickle::pair pair : mapping_entries(mapping).pairs())
    if (!has_name(pair.key)) return false;
  return true;
}

/// PyTorch's `_is_terminal`. Results are cached, so shared containers are examined once.
std::optional<bool> walker::is_leaf(const pickle::value& value, std::size_t depth) {
  const bool mapping = is_mapping(value);
  if (!mapping && value.kind() != pickle::kind::list) return true;
  if (const auto known = leaves_.find(value.identity()); known != leaves_.end()) return known->second;
  if (mapping && !has_text_keys(value)) return leaves_.emplace(value.identity(), true), true;
  if (mapping && options_.policy == key_policy::torch_dcp) return leaves_.emplace(value.identity(), false), false;
  // A value nested this deeply, or inside itself, stays one object. `take_apart` finds its tensors.
  if (depth > options_.max_depth || !in_question_.insert(value.identity()).second) return true;
  if (!check_step(depth)) return std::nullopt;
  bool leaf = true;
  const auto examine = [&](const pickle::value& part) {
    if (is_tensor(part)) return leaf = false, true;
    const auto below = is_leaf(part, depth + 1);
    leaf = leaf && below.value_or(false);
    return below.has_value();
  };
  if (mapping) {
    for (const pickle::pair pair : mapping_entries(value).pairs()) {
      if (!leaf) break;
      if (!examine(pair.value)) return std::nullopt;
    }
  } else {
    for (const pickle::value part : value.items()) {
      if (!leaf) break;
      if (!examine(part)) return std::nullopt;
    }
  }
  in_question_.erase(value.identity());
  leaves_.emplace(value.identity(), leaf);
  return leaf;
}

bool walker::add(const pickle::value& value) {
  flat_entry entry{path_, dotted(path_), value, item_.tensor_of(value)};
  path_bytes_ += 2 * entry.fqn.size() + path_.size() * sizeof(path_key);
  if (entries.size() >= most_entries_ || path_bytes_ > options_.max_path_bytes)
    return stop(errc::unsupported,
                fmt::format("the state dict has more than {} entries, or names of more than {} bytes", most_entries_,
                            options_.max_path_bytes));
  if (!names_.insert(entry.fqn).second) {
    problem = fail(errc::duplicate_key, "two entries of the state dict flatten to the same name").with_key(entry.fqn);
    return false;
  }
  entries.push_back(std::move(entry));
  return true;
}

bool walker::enter(const pickle::value& mapping) {
  if (!check_step(path_.size())) return false;
  open_.insert(mapping.identity());
  const pickle::pairs pairs = mapping_entries(mapping).pairs();
  if (pairs.empty() && options_.keep_empty && !path_.empty() && !add(mapping)) return false;
  key_steps steps(pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    path_.push_back(steps.next(pairs[i].key).value_or(steps.position(i)));
    if (path_.back().is_python()) key_bytes_ += path_.back().pickled().size();
    if (key_bytes_ > most_key_bytes_of(item_))
      return stop(errc::unsupported, "its dicts have keys that share more data than the file's size justifies");
    if (!visit(pairs[i].value)) return false;
    path_.pop_back();
  }
  open_.erase(mapping.identity());
  return true;
}

bool walker::is_description(const pickle::value& value) const {
  if (!options_.keep_descriptions || path_.empty() || path_.back().is_index()) return false;
  const std::string_view name = path_.back().name();
  return (name == "wrapper" || name.ends_with(".wrapper")) && is_wrapper_description(value) && read_wrapper_form(value);
}

bool walker::visit(const pickle::value& value) {
  if (is_description(value)) return add(value);
  const auto leaf = is_leaf(value, path_.size());
  if (!leaf) return false;
  // A value inside itself stays one object at that place. `take_apart` finds its tensors.
  if (*leaf || open_.contains(value.identity())) return add(value);
  if (is_mapping(value)) return enter(value);
  if (!check_step(path_.size())) return false;
  open_.insert(value.identity());
  const pickle::items items = value.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    path_.push_back(static_cast<std::int64_t>(i));
    if (!visit(items[i])) return false;
    path_.pop_back();
  }
  open_.erase(value.identity());
  return true;
}

}  // namespace

result<std::vector<flat_entry>> flatten_state_dict(const torch_file::item& item, const pickle::value& root,
                                                   const flatten_options& options) {
  if (options.policy == key_policy::typed)
    return fail(errc::invalid_argument, "a pickled state dict cannot be flattened by this key policy")
        .with_values("key_policy::torch_dcp or key_policy::torch_dcp_2_3", "key_policy::typed");
  if (options.may_be_list && root.kind() == pickle::kind::list) {
    walker made(item, options);
    if (!made.visit(root)) return *std::move(made.problem);
    return std::move(made.entries);
  }
  if (!is_mapping(root))
    return fail(errc::bad_format, fmt::format("a state dict is expected, not a {}", classify(item, root).type));
  walker made(item, options);  // the root is entered whatever its keys are
  if (!made.enter(root)) return *std::move(made.problem);
  return std::move(made.entries);
}

}  // namespace shardmesh::torch_file
