// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :key_steps;
import :object_walk;
import :tensor_search;

namespace shardmesh::torch_file {
namespace {

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

}  // namespace

object_walk::object_walk(const torch_file::item& item, const flatten_options& options, tensor_search& search,
                         const walk_limits& limits)
    : item_(item), options_(options), search_(search), limits_(limits) {}

void object_walk::take(const flat_entry& entry, split_object& into) {
  into_ = &into;
  path_ = entry.where;
  fqn_ = entry.fqn;
  into.is_apart = true;
  if (enter(entry.value)) return;
  into = {};
  open_.clear();
}

bool object_walk::enter(const pickle::value& value, bool is_submodule) {
  if (++steps_ > 4 * limits_.entries || open_.size() > options_.max_depth) return false;
  if (is_tensor(item_, value)) return add(value);
  if (!search_.holds(value)) return add(value);
  if (std::find(open_.begin(), open_.end(), value.identity()) != open_.end()) return true;  // inside itself
  open_.push_back(value.identity());
  const bool whole = enter_parts(value, is_submodule);
  open_.pop_back();
  return whole;
}

bool object_walk::enter_parts(const pickle::value& value, bool is_submodule) {
  if (value.kind() == pickle::kind::persistent) return leave_out(value);
  if (is_mapping(value)) return enter_pairs(mapping_entries(value).pairs());
  if (value.kind() != pickle::kind::record || !sequence_items(value).empty()) return enter_items(sequence_items(value));
  if (const pickle::value state = module_state(value)) return enter_module(state, is_submodule);
  return enter_instance(value);
}

bool object_walk::enter_items(const pickle::items& items) {
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!step(static_cast<std::int64_t>(i), items[i])) return false;
  return true;
}

bool object_walk::enter_pairs(const pickle::pairs& pairs) {
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
    if (key_bytes_ > limits_.key_bytes) return false;
    if (!step(name, pairs[i].value)) return false;
  }
  return true;
}

bool object_walk::enter_module(const pickle::value& state, bool is_submodule) {
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

bool object_walk::enter_instance(const pickle::value& record) {
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
  if (has_slots) return enter_pairs(mapping_entries(both[0]).pairs()) && enter_pairs(mapping_entries(both[1]).pairs());
  return !search_.holds(state) || step(std::string("state"), state);
}

bool object_walk::step(const path_key& name, const pickle::value& value, bool joins, bool is_submodule) {
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

bool object_walk::add(const pickle::value& value) {
  path_bytes_ += 2 * fqn_.size() + path_.size() * sizeof(path_key);
  if (++entries_ > limits_.entries || path_bytes_ > options_.max_path_bytes) return false;
  into_->entries.push_back({path_, fqn_, value, item_.tensor_of(value), 0});
  return true;
}

bool object_walk::leave_out(const pickle::value& value) {
  into_->left_out.push_back(value);
  return true;
}

}  // namespace shardmesh::torch_file
