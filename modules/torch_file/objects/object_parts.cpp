// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :object_parts;
import :object_walk;
import :tensor_search;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t named_notes = 10;

class apart {
 public:
  apart(const torch_file::item& item, const flatten_options& options)
      : item_(item),
        search_(item),
        walk_(item, options, search_, {most_entries(item, options), most_key_bytes_of(item)}),
        count_budget_(4 * most_entries(item, options)) {}

  result<taken_apart> run(std::vector<flat_entry> entries) {
    std::vector<split_object> parts(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!is_tensor(item_, entries[i].value) && search_.holds(entries[i].value)) walk_.take(entries[i], parts[i]);
      name_tensors(entries[i]);
      for (const flat_entry& part : parts[i].entries) name_tensors(part);
      named_.insert(parts[i].transient.begin(), parts[i].transient.end());
    }
    for (const flat_entry& entry : entries) names_.insert(entry.fqn);
    for (std::size_t i = 0; i < entries.size(); ++i) settle(std::move(entries[i]), std::move(parts[i]));
    if (noted_ > named_notes)
      made_.notes.push_back(
          fmt::format("... and {} split", detail::counted(noted_ - named_notes, "more object is", "more objects are")));
    return std::move(made_);
  }

 private:
  void name_tensors(const flat_entry& entry) {
    if (is_tensor(item_, entry.value)) named_.insert(entry.value.identity());
  }

  std::int64_t count_unnamed(const pickle::value& below) {
    const auto is_named = [&](const pickle::value& tensor) { return named_.contains(tensor.identity()); };
    return search_.count_below(below, is_named, count_budget_);
  }

  // Adds an entry, or its parts, to the result. Tensors that no entry of the item names count as hidden, so this runs
  // after all names are known.
  void settle(flat_entry entry, split_object parts) {
    if (!parts.is_apart) {
      if (!is_tensor(item_, entry.value) && search_.holds(entry.value))
        entry.hidden_tensors = std::max<std::int64_t>(1, count_unnamed(entry.value));
      made_.entries.push_back(std::move(entry));
      return;
    }
    const auto tensors = std::count_if(parts.entries.begin(), parts.entries.end(),
                                       [&](const flat_entry& part) { return is_tensor(item_, part.value); });
    if (!take_names(parts)) {
      entry.hidden_tensors = std::max<std::int64_t>(1, tensors);
      made_.entries.push_back(std::move(entry));
      return;
    }
    std::int64_t hidden = 0;
    for (const pickle::value& left : parts.left_out) hidden += count_unnamed(left);
    const std::string type = classify(item_, entry.value).type;
    made_.unread_tensors += static_cast<std::int64_t>(parts.transient.size());
    if ((!parts.entries.empty() || !parts.transient.empty()) && noted_++ < named_notes) {
      std::string note =
          fmt::format("{} (a {}) is split into {} and {}", entry.fqn.empty() ? "the file" : entry.fqn, type,
                      detail::counted(tensors, "tensor"),
                      detail::counted(parts.entries.size() - static_cast<std::size_t>(tensors), "object"));
      if (parts.attributes > 0)
        note += fmt::format("; {} not kept", detail::counted(parts.attributes, "other attribute of modules is",
                                                             "other attributes of modules are"));
      if (parts.positions > 0)
        note +=
            fmt::format("; positions replace {}",
                        detail::counted(parts.positions, "key that is a tensor, too large, or pickled like another key",
                                        "keys that are tensors, too large, or pickled like another key"));
      if (!parts.transient.empty())
        note += fmt::format("; {} not kept: {}",
                            detail::counted(parts.transient.size(), "buffer that is not persistent is",
                                            "buffers that are not persistent are"),
                            name_list(parts.transient_names));
      made_.notes.push_back(std::move(note));
    }
    std::move(parts.entries.begin(), parts.entries.end(), std::back_inserter(made_.entries));
    if (hidden == 0) return;
    entry.hidden_tensors = hidden;
    made_.entries.push_back(std::move(entry));
  }

  // Reserves the names of all parts. If a part has another entry's name ({"a.0": .., "a": (tensor,)}), reserves none
  // and returns false.
  bool take_names(const split_object& parts) {
    for (std::size_t i = 0; i < parts.entries.size(); ++i) {
      if (names_.insert(parts.entries[i].fqn).second) continue;
      while (i-- > 0) names_.erase(parts.entries[i].fqn);
      return false;
    }
    return true;
  }

  const item& item_;
  tensor_search search_;
  object_walk walk_;
  std::size_t count_budget_;
  std::unordered_set<std::uint64_t> named_;  // tensors that have an entry or need none
  std::unordered_set<std::string> names_;
  std::size_t noted_ = 0;
  taken_apart made_;
};

}  // namespace

result<taken_apart> take_apart(const torch_file::item& item, std::vector<flat_entry> entries,
                               const flatten_options& options) {
  return apart(item, options).run(std::move(entries));
}

std::size_t most_key_bytes_of(const torch_file::item& item) {
  return (std::size_t{1} << 20) + 16 * item.graph().consumed_bytes();
}

bool holds_tensors(const torch_file::item& item, const pickle::value& value) {
  return tensor_search(item).holds(value);
}

std::size_t most_entries(const torch_file::item& item, const flatten_options& options) {
  const std::size_t values = item.graph().memory_bytes() / sizeof(std::uint64_t);
  return std::min(options.max_entries, std::max<std::size_t>(values, 100'000));
}

}  // namespace shardmesh::torch_file
