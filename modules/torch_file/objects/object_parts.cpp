// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.torch_file;

import :key_steps;
import :object_parts;
import :tensor_search;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t named_notes = 10;

// Returns the `__dict__` of an nn.Module: its state, or the first argument of the torch.fx call that rebuilds it.
pickle::value module_state(const pickle::value& record) {
  const auto is_state = [](const pickle::value& state) {
    return is_mapping(state.find("_parameters")) && is_mapping(state.find("_buffers")) &&
           is_mapping(state.find("_modules"));
  };
  if (is_state(record.state())) return record.state();
  const pickle::items args = record.args().items();
  const bool is_graph = record.callable().global_module().starts_with("torch.fx.");
  return is_graph && !args.empty() && is_state(args[0]) ? args[0] : pickle::value();
}

class apart {
 public:
  apart(const torch_file::item& item, const flatten_options& options)
      : item_(item),
        options_(options),
        search_(item),
        most_entries_(most_entries(item, options)),
        most_steps_(4 * most_entries_),
        count_budget_(most_steps_) {}

  result<taken_apart> run(std::vector<flat_entry> entries) {
    std::vector<taken> parts(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!is_tensor(item_, entries[i].value) && search_.holds(entries[i].value)) take(entries[i], parts[i]);
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
  // The result of taking one entry apart.
  struct taken {
    std::vector<flat_entry> entries;
    std::vector<pickle::value> left_out;   // values with tensors but without a name
    std::size_t attributes = 0;            // tensor-free attributes of modules, which are dropped
    std::size_t positions = 0;             // keys that no format can hold, replaced by their positions
    std::vector<std::uint64_t> transient;  // buffers that state_dict() leaves out
    std::vector<std::string> transient_names;
    bool is_apart = false;
  };

  void take(const flat_entry& entry, taken& into) {
    into_ = &into;
    path_ = entry.where;
    fqn_ = entry.fqn;
    into.is_apart = true;
    if (enter(entry.value)) return;
    into = {};
    open_.clear();
  }

  void name_tensors(const flat_entry& entry) {
    if (is_tensor(item_, entry.value)) named_.insert(entry.value.identity());
  }

  // Enters a value; false beyond the limits. `is_submodule`: the path's last step names this module.
  bool enter(const pickle::value& value, bool is_submodule = false) {
    if (++steps_ > most_steps_ || open_.size() > options_.max_depth) return false;
    if (is_tensor(item_, value)) return add(value);
    if (!search_.holds(value)) return add(value);
    if (std::find(open_.begin(), open_.end(), value.identity()) != open_.end()) return true;  // inside itself
    open_.push_back(value.identity());
    const bool whole = enter_parts(value, is_submodule);
    open_.pop_back();
    return whole;
  }

  bool enter_parts(const pickle::value& value, bool is_submodule) {
    if (value.kind() == pickle::kind::persistent) return leave_out(value);
    if (is_mapping(value)) return enter_pairs(mapping_entries(value).pairs());
    if (value.kind() != pickle::kind::record || !sequence_items(value).empty())
      return enter_items(sequence_items(value));
    if (const pickle::value state = module_state(value)) return enter_module(state, is_submodule);
    return enter_instance(value);
  }

  bool enter_items(const pickle::items& items) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!step(static_cast<std::int64_t>(i), items[i])) return false;
    return true;
  }

  // Positions replace keys that cannot be kept, such as tensors as keys of an optimizer's state.
  bool enter_pairs(const pickle::pairs& pairs) {
    key_steps steps(pairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const bool has_tensors = search_.holds(pairs[i].key);
      if (has_tensors) leave_out(pairs[i].key);
      auto kept = has_tensors ? std::nullopt : steps.next(pairs[i].key);
      into_->positions += kept ? 0 : 1;
      const path_key name = kept                      ? *std::move(kept)
                            : steps.are_all_unnamed() ? path_key(static_cast<std::int64_t>(i))
                                                      : path_key(steps.position(i));
      if (name.is_python()) key_bytes_ += name.pickled().size();
      if (key_bytes_ > most_key_bytes_of(item_)) return false;
      if (!step(name, pairs[i].value)) return false;
    }
    return true;
  }

  // Enters a module as state_dict() does: one dict, whose keys join the names of submodules and parameters.
  bool enter_module(const pickle::value& state, bool is_submodule) {
    const pickle::value transient = state.find("_non_persistent_buffers_set");
    const auto is_transient = [&](const pickle::value& key) {
      for (const pickle::value name : sequence_items(transient))
        if (name.text() && name.text() == key.text()) return true;
      return false;
    };
    for (const std::string_view part : {"_parameters", "_buffers", "_modules"})
      for (const pickle::pair pair : mapping_entries(state.find(part)).pairs()) {
        if (pair.value.is_none() || !pair.key.text()) continue;
        const bool is_tensor_here = is_tensor(item_, pair.value);
        if (part == "_buffers" && is_tensor_here && is_transient(pair.key)) {
          into_->transient.push_back(pair.value.identity());
          into_->transient_names.push_back(fqn_ + (fqn_.empty() ? "" : ".") + std::string(*pair.key.text()));
          continue;
        }
        if (is_tensor_here || search_.holds(pair.value)) {
          if (!step(std::string(*pair.key.text()), pair.value, is_submodule, part == "_modules")) return false;
        } else {
          ++into_->attributes;
        }
      }
    for (const pickle::pair pair : state.pairs()) {
      const auto name = pair.key.text();
      if (name == "_parameters" || name == "_buffers" || name == "_modules") continue;
      if (!name || !search_.holds(pair.value)) {
        into_->attributes += name && !name->starts_with('_') ? 1 : 0;
        continue;
      }
      if (!step(std::string(*name), pair.value, is_submodule)) return false;
    }
    return true;
  }

  // Enters what an instance was given: items of a tuple or list subclass, entries of a dict subclass, attributes, and
  // slots. Tensors among a function's arguments stay hidden, because only the function knows their meaning.
  bool enter_instance(const pickle::value& record) {
    const pickle::items args = record.args().items();
    const bool is_class = record.form() == pickle::form::newobj || record.form() == pickle::form::newobj_ex ||
                          record.callable().global_name() == "_reconstructor";
    if (!is_class && (search_.holds(record.args()) || search_.holds(record.callable()))) return leave_out(record);
    if (search_.holds(record.keyword_args())) return leave_out(record);
    if (record.callable().global_name() == "_reconstructor") {  // class, base, the base's value
      if (args.size() == 3 && search_.holds(args[2]) && !enter(args[2])) return false;
    } else if (is_class && !enter_items(args)) {
      return false;
    }
    if (!enter_items(record.appended().items()) || !enter_pairs(record.assigned().pairs())) return false;
    const pickle::value state = record.state();
    if (!state || state.is_none()) return true;
    if (state.kind() == pickle::kind::dict) return enter_pairs(state.pairs());
    const pickle::items both = state.items();
    const bool has_slots = state.kind() == pickle::kind::tuple && both.size() == 2 &&
                           (both[0].is_none() || is_mapping(both[0])) && is_mapping(both[1]);
    if (has_slots)
      return enter_pairs(mapping_entries(both[0]).pairs()) && enter_pairs(mapping_entries(both[1]).pairs());
    return !search_.holds(state) || step(std::string("state"), state);
  }

  // `joins`: joins the name to the path's last step with a dot.
  bool step(const path_key& name, const pickle::value& value, bool joins = false, bool is_submodule = false) {
    const std::size_t before = fqn_.size();
    if (!path_.empty()) fqn_ += '.';
    fqn_ += key_text(name);
    const path above = path_;
    if (joins) path_.pop_back();
    path_.push_back(joins ? path_key(key_text(above.back()) + "." + key_text(name)) : name);
    const bool whole = enter(value, is_submodule);
    path_ = above;
    fqn_.resize(before);
    return whole;
  }

  bool add(const pickle::value& value) {
    path_bytes_ += 2 * fqn_.size() + path_.size() * sizeof(path_key);
    if (++entries_ > most_entries_ || path_bytes_ > options_.max_path_bytes) return false;
    into_->entries.push_back({path_, fqn_, value, item_.tensor_of(value), 0});
    return true;
  }

  bool leave_out(const pickle::value& value) {
    into_->left_out.push_back(value);
    return true;
  }

  std::int64_t count_unnamed(const pickle::value& below) {
    const auto is_named = [&](const pickle::value& tensor) { return named_.contains(tensor.identity()); };
    return search_.count_below(below, is_named, count_budget_);
  }

  // Adds an entry, or its parts, to the result. Tensors that no entry of the item names count as hidden, so this runs
  // after all names are known.
  void settle(flat_entry entry, taken parts) {
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
  bool take_names(const taken& parts) {
    for (std::size_t i = 0; i < parts.entries.size(); ++i) {
      if (names_.insert(parts.entries[i].fqn).second) continue;
      while (i-- > 0) names_.erase(parts.entries[i].fqn);
      return false;
    }
    return true;
  }

  const item& item_;
  const flatten_options& options_;
  tensor_search search_;
  std::size_t most_entries_, most_steps_, count_budget_;
  taken* into_ = nullptr;
  path path_;
  std::string fqn_;
  std::vector<std::uint64_t> open_;          // the values around the current one
  std::unordered_set<std::uint64_t> named_;  // tensors that have an entry or need none
  std::unordered_set<std::string> names_;
  std::size_t steps_ = 0, entries_ = 0, path_bytes_ = 0, key_bytes_ = 0, noted_ = 0;
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
