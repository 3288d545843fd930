// SPDX-License-Identifier: Apache-2.0
// An offer begins with two 32-bit words: the position where the search for a number begins, and the count of live
// numbers. The live numbers follow as 16-bit words, or as one bit per number when that is shorter.
module;
#include <fmt/core.h>
#include <process_token.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh {
namespace {

constexpr std::uint32_t all_numbers = 1U << 10;
constexpr std::uint32_t most_listed = all_numbers / 16;
using number_set = std::bitset<all_numbers>;

// No object has number 0. The last number of the executors' range is taken by the all_gathers of subgroups.
constexpr std::uint32_t largest(numbered_object kind) {
  return kind == numbered_object::subgroup ? all_numbers - 1 : all_numbers - 2;
}

struct offer_head {
  std::uint32_t next = 0;
  std::uint32_t live = 0;
};

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class T>
bool take(std::span<const std::byte>& from, T& value) {
  if (from.size() < sizeof(T)) return false;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return true;
}

std::vector<std::byte> encode(std::uint32_t next, const number_set& live) {
  const offer_head head{next, static_cast<std::uint32_t>(live.count())};
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(head) + all_numbers / 8);
  append(bytes, head);
  for (std::uint32_t first = 0; head.live > most_listed && first < all_numbers; first += 8) {
    std::uint8_t bits = 0;
    for (std::uint32_t i = 0; i < 8; ++i) bits |= static_cast<std::uint8_t>(live[first + i] ? 1U << i : 0U);
    append(bytes, bits);
  }
  for (std::uint32_t number = 0; head.live <= most_listed && number < all_numbers; ++number)
    if (live[number]) append(bytes, static_cast<std::uint16_t>(number));
  return bytes;
}

// Adds the numbers of an offer to `live`. Returns false when the bytes are not an offer.
bool decode(std::span<const std::byte> bytes, std::uint32_t& next, number_set& live) {
  offer_head head;
  if (!take(bytes, head) || head.live > all_numbers) return false;
  next = std::max(next, head.next);
  if (head.live > most_listed) {
    if (bytes.size() != all_numbers / 8) return false;
    for (std::uint32_t number = 0; number < all_numbers; ++number)
      if ((std::to_integer<std::uint32_t>(bytes[number / 8]) >> number % 8 & 1) != 0) live.set(number);
    return true;
  }
  for (std::uint32_t i = 0; i < head.live; ++i) {
    std::uint16_t number = 0;
    if (!take(bytes, number) || number >= all_numbers) return false;
    live.set(number);
  }
  return bytes.empty();
}

error none_is_free(numbered_object kind) {
  if (kind == numbered_object::subgroup)
    return fail(errc::unsupported, fmt::format("ranks of this communicator are in {} subgroups already", largest(kind)))
        .with_hint("destroy subgroups that are no longer needed");
  return fail(errc::unsupported, fmt::format("this communicator has {} executors already", largest(kind)))
      .with_hint("destroy some (plan caches keep theirs), or make them on a subgroup, which has its own numbers");
}

}  // namespace

struct object_numbers::state {
  struct known {
    std::uint32_t next = 0;                            // only grows: the position where the next search begins
    std::array<std::uint32_t, all_numbers> holders{};  // per number: ranks that are threads may share this set
    number_set live;
  };
  detail::lock_across_fork lock;  // a child may still use a communicator of its parent
  std::array<known, 2> kinds;

  known& of(numbered_object kind) { return kinds[static_cast<std::size_t>(kind)]; }
  void let_go(numbered_object kind, std::uint32_t number) {
    const std::lock_guard locked(lock);
    if (--of(kind).holders[number] == 0) of(kind).live.reset(number);
  }
};

object_numbers::object_numbers() : state_(std::make_shared<state>()) {}

std::vector<std::byte> object_numbers::offer(numbered_object kind) const {
  const std::lock_guard locked(state_->lock);
  return encode(state_->of(kind).next, state_->of(kind).live);
}

std::optional<std::vector<std::byte>> object_numbers::merge(std::span<const std::byte> a,
                                                            std::span<const std::byte> b) {
  std::uint32_t next = 0;
  number_set live;
  if (!decode(a, next, live) || !decode(b, next, live)) return std::nullopt;
  return encode(next, live);
}

result<std::uint32_t> object_numbers::choose(numbered_object kind, std::span<const std::span<const std::byte>> offers) {
  std::uint32_t next = 0;
  number_set live;
  for (std::size_t member = 0; member < offers.size(); ++member)
    if (!decode(offers[member], next, live))
      return fail(errc::disagreement, "a rank is in another call while the others make a subgroup or an executor")
          .with_rank(static_cast<std::int32_t>(member))
          .with_hint("make subgroups and executors on all ranks, in the same order");
  const std::uint32_t count = largest(kind);
  std::uint32_t tried = 0;
  while (tried < count && live[1 + (next + tried) % count]) ++tried;
  if (tried == count) return none_is_free(kind);
  const std::lock_guard locked(state_->lock);
  state_->of(kind).next = next + tried + 1;
  return 1 + (next + tried) % count;
}

held_number object_numbers::hold(numbered_object kind, std::uint32_t number) {
  auto value = std::make_unique<std::uint32_t>(number);
  {
    const std::lock_guard locked(state_->lock);
    ++state_->of(kind).holders[number];
    state_->of(kind).live.set(number);
  }
  const auto let_go = [kind, shared = state_](const std::uint32_t* gone) {
    shared->let_go(kind, *gone);
    delete gone;
  };
  return held_number(std::shared_ptr<const std::uint32_t>(value.release(), let_go));
}

object_numbers detail::process_numbers() {
  static const auto* const all = new object_numbers;  // leaked: objects that hold a number may outlive static ones
  return *all;
}

}  // namespace shardmesh
