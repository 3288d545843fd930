// SPDX-License-Identifier: Apache-2.0
// Decides which globals and calls of a run deserve an event.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
module shardmesh.pickle;

import :trace;

namespace shardmesh::pickle {

void event_log::note_global(const pickle::value& global) {
  if (global.global_name() == "getattr") getters_.insert(global.identity());
  std::string full = std::string(global.global_module()) + '\n' + std::string(global.global_name());
  if (noted_.insert(std::move(full)).second) note(event::what::global, global);
}

void event_log::note_call(const pickle::value& callable, const pickle::value& args, const pickle::value& call) {
  // Every chunk of a checkpoint calls the same three callables.
  std::uint64_t& plain = plain_[(callable.identity() >> 5) * 0x9e3779b97f4a7c15 >> 58];
  if (getters_.empty() && plain == callable.identity()) return;
  bool is_odd = callable.kind() != kind::global || getters_.contains(callable.identity());
  if (!getters_.empty() && !is_odd) {
    const pickle::items items = args.items();
    for (std::size_t i = 0; i < std::min<std::size_t>(items.size(), 16); ++i)
      is_odd |= getters_.contains(items[i].identity());
  }
  // A function that calls its first argument is as odd as that argument.
  if (!is_odd && callable.global_name() == "_rebuild_from_type_v2") {
    const pickle::items items = args.items();
    is_odd = !items.empty() && items[0].kind() != kind::global;
  }
  if (is_odd && calls_++ < most_calls) note(event::what::call, call);
  if (is_odd) return;
  const std::string_view name = callable.global_name();
  if (name == "_load_from_bytes" && calls_++ < most_calls) note(event::what::load, call);
  if (name != "_load_from_bytes" && name != "_rebuild_from_type_v2") plain = callable.identity();
}

}  // namespace shardmesh::pickle
