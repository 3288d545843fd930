// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

/// Python's str(float): the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> text;
  const auto plain = std::to_chars(text.begin(), text.end(), value, std::chars_format::scientific);
  std::string scientific(text.begin(), plain.ptr);
  const int exponent = std::atoi(scientific.substr(scientific.find('e') + 1).c_str());
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed);
  std::string out(text.begin(), fixed.ptr);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

/// Python's str(key); nothing for keys whose text needs Python.
std::optional<std::string> key_text(const pickle_value& key) {
  switch (key.kind()) {
    case pickle_kind::text:
      return std::string(*key.text());
    case pickle_kind::integer:
      return key.decimal();
    case pickle_kind::boolean:
      return *key.as_bool() ? "True" : "False";
    case pickle_kind::none:
      return "None";
    case pickle_kind::floating:
      return python_float(*key.as_float());
    default:
      return std::nullopt;
  }
}

std::string item_text(const flat_path_item& item) {
  if (const auto* text = std::get_if<std::string>(&item)) return *text;
  return std::to_string(std::get<std::int64_t>(item));
}

class walker {
 public:
  walker(const torch_item& item, const flatten_options& options) : item_(item), options_(options) {}
  result<void> enter(const pickle_value& mapping);
  std::vector<flat_entry> entries;

 private:
  result<void> visit(const pickle_value& value);
  result<bool> is_leaf(const pickle_value& value, std::size_t depth);
  result<void> add(const pickle_value& value);
  result<void> check_step(std::size_t depth);
  bool is_tensor(const pickle_value& value) const {
    return item_.tensor_of(value).has_value() || item_.is_opaque_tensor(value);
  }

  const torch_item& item_;
  const flatten_options& options_;
  std::vector<flat_path_item> path_;
  std::unordered_map<std::uint64_t, bool> leaves_;  // answers of is_leaf for containers
  std::unordered_set<std::uint64_t> in_question_;
  std::unordered_set<std::string> names_;
  std::size_t path_bytes_ = 0, steps_ = 0;
};

result<void> walker::check_step(std::size_t depth) {
  if (depth > options_.max_depth)
    return fail(errc::unsupported,
                fmt::format("the state dict is nested deeper than {} levels, or contains itself", options_.max_depth));
  // Shared references can make a small file walk for ever without one entry.
  if (++steps_ / 16 > options_.max_entries)
    return fail(errc::unsupported, fmt::format("the state dict has more than {} entries", options_.max_entries));
  return {};
}

/// PyTorch's `_is_terminal`. Answers are kept, so shared containers are examined once.
result<bool> walker::is_leaf(const pickle_value& value, std::size_t depth) {
  const bool mapping = is_mapping(value);
  if (!mapping && value.kind() != pickle_kind::list) return true;
  if (mapping && options_.rule == flatten_rule::torch_2_4) return false;
  if (const auto known = leaves_.find(value.identity()); known != leaves_.end()) return known->second;
  SHARDMESH_CHECK(check_step(depth));
  if (!in_question_.insert(value.identity()).second)
    return fail(errc::unsupported, "a list or dict of the state dict contains itself");
  bool leaf = true;
  const auto examine = [&](const pickle_value& part) -> result<void> {
    if (is_tensor(part)) return leaf = false, result<void>{};
    SHARDMESH_TRY(const bool below, is_leaf(part, depth + 1));
    leaf = leaf && below;
    return {};
  };
  if (mapping) {
    for (const pickle_pair pair : mapping_entries(value).pairs()) {
      if (!leaf) break;
      SHARDMESH_CHECK(examine(pair.value));
    }
  } else {
    for (const pickle_value part : value.items()) {
      if (!leaf) break;
      SHARDMESH_CHECK(examine(part));
    }
  }
  in_question_.erase(value.identity());
  leaves_.emplace(value.identity(), leaf);
  return leaf;
}

result<void> walker::add(const pickle_value& value) {
  flat_entry entry{path_, {}, value, item_.tensor_of(value)};
  for (const flat_path_item& part : path_) {
    if (&part != &path_.front()) entry.fqn += '.';
    entry.fqn += item_text(part);
  }
  path_bytes_ += 2 * entry.fqn.size() + path_.size() * sizeof(flat_path_item);
  if (entries.size() >= options_.max_entries || path_bytes_ > options_.max_path_bytes)
    return fail(errc::unsupported,
                fmt::format("the state dict has more than {} entries, or names of more than {} bytes",
                            options_.max_entries, options_.max_path_bytes));
  if (!names_.insert(entry.fqn).second)
    return fail(errc::duplicate_key, "two entries of the state dict flatten to one name").with_key(entry.fqn);
  entries.push_back(std::move(entry));
  return {};
}

result<void> walker::enter(const pickle_value& mapping) {
  SHARDMESH_CHECK(check_step(path_.size()));
  for (const pickle_pair pair : mapping_entries(mapping).pairs()) {
    auto text = key_text(pair.key);
    if (!text)
      return fail(errc::unsupported, fmt::format("a dict key is a {}", name(pair.key.kind())))
          .with_hint("keys that are str, int, bool, float or None can be flattened");
    path_.emplace_back(std::move(*text));
    SHARDMESH_CHECK(visit(pair.value));
    path_.pop_back();
  }
  return {};
}

result<void> walker::visit(const pickle_value& value) {
  SHARDMESH_TRY(const bool leaf, is_leaf(value, path_.size()));
  if (leaf) return add(value);
  if (is_mapping(value)) return enter(value);
  SHARDMESH_CHECK(check_step(path_.size()));
  const pickle_items items = value.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    path_.emplace_back(static_cast<std::int64_t>(i));
    SHARDMESH_CHECK(visit(items[i]));
    path_.pop_back();
  }
  return {};
}

}  // namespace

result<std::vector<flat_entry>> flatten_state_dict(const torch_item& item, const pickle_value& root,
                                                   const flatten_options& options) {
  if (!is_mapping(root))
    return fail(errc::bad_format, fmt::format("a state dict is expected, not a {}", classify(item, root).type));
  walker made(item, options);
  SHARDMESH_CHECK(made.enter(root));
  return std::move(made.entries);
}

}  // namespace shardmesh
