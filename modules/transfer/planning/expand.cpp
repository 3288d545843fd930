// SPDX-License-Identifier: Apache-2.0
// The transfer rules compiled for `distribution`.
module;
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :expand;

namespace shardmesh {

// The lists of the thread's innermost `expansion_memory`. A raw pointer, for the reason in `concurrent_runs`.
struct expansion_memory::lists {
  static constexpr std::size_t most_lists = 4;
  std::vector<fragment> kept[most_lists];
  std::size_t count = 0;
};
namespace {
thread_local expansion_memory::lists* current = nullptr;
}

expansion_memory::expansion_memory()
    : lists_(std::make_unique<lists>()), outer_(std::exchange(current, lists_.get())) {}
expansion_memory::~expansion_memory() {
  current = outer_;
}

std::vector<fragment> take_fragments() {
  if (!current || current->count == 0) return {};
  return std::move(current->kept[--current->count]);
}
void give_back_fragments(std::vector<fragment> list) {
  constexpr std::size_t most_fragments = 4096;
  if (!current || current->count == expansion_memory::lists::most_lists || list.capacity() == 0 ||
      list.capacity() > most_fragments)
    return;
  list.clear();
  current->kept[current->count++] = std::move(list);
}

void expand(const transfer_class& c, owner_id owner, owner_space space, function_ref<void(const step&)> emit) {
  rules::expand(c, owner, space, emit);
}

owner_steps steps_of(const transfer_class& c, owner_id owner, owner_space space, std::size_t expected) {
  if (auto computed = arithmetic_steps(c, owner, space)) return *std::move(computed);
  return rules::steps_of(c, owner, space, expected);
}

std::int64_t lower_bound_of(const transfer_class& c) {
  std::int64_t bound = 0;
  if (c.mode == transfer_mode::reduce)
    c.from.for_each_owner([&](owner_id owner) { bound += rules::least_for_terms_of(c, owner); });
  else
    c.to.for_each_owner([&](owner_id owner) { bound += rules::least_to(c, owner); });
  return bound;
}

}  // namespace shardmesh
