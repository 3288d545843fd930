// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.storage;

namespace shardmesh {
namespace {

constexpr std::string_view hint = "raise the limit factor, if you trust the file";
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

std::int64_t product(std::int64_t a, std::int64_t b) {
  return checked_multiply(a, b).value_or(most);
}

// Returns `base` and `per_byte` for each of `bytes`; saturates.
std::int64_t allowance(std::int64_t base, std::int64_t per_byte, std::int64_t bytes) {
  return checked_add(base, product(per_byte, bytes)).value_or(most);
}

}  // namespace

read_limits read_limits::times(std::int64_t factor) const {
  read_limits made = *this;
  for (std::int64_t* limit : {&made.description_bytes, &made.built_bytes, &made.built_per_byte, &made.decoded_bytes,
                              &made.decoded_per_byte, &made.expanded_bytes, &made.expanded_per_byte})
    *limit = product(*limit, std::max<std::int64_t>(factor, 1));
  return made;
}

error beyond_limit(std::string what, std::int64_t limit, std::string_view unit) {
  return fail(errc::bad_format, std::move(what))
      .with_values(fmt::format("at most {} {}", limit, unit), "more")
      .with_hint(hint);
}

bool is_beyond_limit(const error& problem) {
  // Sparse files are refused with a hint of their own.
  return problem.hint == hint || problem.hint.starts_with("write the file without holes");
}

result<void> read_budget::build(std::int64_t bytes) {
  const std::int64_t limit = allowance(limits_.built_bytes, limits_.built_per_byte, described_);
  if ((built_ += bytes) > limit) return beyond_limit("its metadata expands to more than its size justifies", limit);
  return {};
}

std::int64_t read_budget::left_to_build() const {
  return std::max<std::int64_t>(allowance(limits_.built_bytes, limits_.built_per_byte, described_) - built_, 0);
}

std::int64_t read_budget::left_to_decode(const std::string& place, std::int64_t encoded) const {
  const std::scoped_lock guard(lock_);
  if (decoded_places_.contains(place)) return most;
  return std::max<std::int64_t>(
      allowance(limits_.decoded_bytes, limits_.decoded_per_byte, encoded_ + encoded) - decoded_, 0);
}

result<void> read_budget::decode(const std::string& place, std::int64_t encoded, std::int64_t decoded) {
  const std::scoped_lock guard(lock_);
  if (!decoded_places_.insert(place).second) return {};
  encoded_ += encoded;
  decoded_ = checked_add(decoded_, decoded).value_or(most);
  const std::int64_t limit = allowance(limits_.decoded_bytes, limits_.decoded_per_byte, encoded_);
  if (decoded_ > limit) return beyond_limit("compressed data decodes to more than is plausible", limit);
  return {};
}

result<void> read_budget::expand(std::int64_t beyond, std::int64_t stored) {
  const std::scoped_lock guard(lock_);
  stored_ += stored;
  beyond_ = checked_add(beyond_, std::max<std::int64_t>(beyond, 0)).value_or(most);
  const std::int64_t limit = allowance(limits_.expanded_bytes, limits_.expanded_per_byte, stored_);
  if (beyond_ > limit) return beyond_limit("tensors repeat stored elements more often than is plausible", limit);
  return {};
}

std::optional<error> read_budget::refusal() const {
  const std::scoped_lock guard(lock_);
  return refusal_;
}

error read_budget::keep(error problem) {
  if (!is_beyond_limit(problem)) return problem;
  const std::scoped_lock guard(lock_);
  if (!refusal_) refusal_ = std::move(problem);
  return *refusal_;
}

}  // namespace shardmesh
