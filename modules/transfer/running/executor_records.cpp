// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.transfer;

import :executor_records;

namespace shardmesh {
namespace {

std::string text_of(const distribution& d) {
  return to_hex(d.digest());
}

std::string text_of(const plan_options& o, const run_options& run) {
  return fmt::format("memory {}, narrowing {}, deterministic {}, reduce grain {}, check {}{}", o.memory_bytes,
                     o.allow_narrowing, o.deterministic, o.reduce_grain_bytes,
                     run.check == check_policy::once ? "once" : "every run",
                     run.whole_plan ? "" : ", each rank's own part");
}

constexpr std::string_view options_key = "(options)";

// The digest of a plan without its fragments, of which each rank lists others.
digest128 digest_of_outline(const transfer_plan& plan) {
  const plan_options& o = plan.options();
  std::vector<std::int64_t> numbers{o.memory_bytes, o.allow_narrowing, o.deterministic, o.reduce_grain_bytes};
  for (const tensor_transfer& one : plan.transfers()) {
    const extents& shape = one.from.global_shape();
    numbers.push_back(static_cast<std::int64_t>(shape.rank()));
    numbers.insert(numbers.end(), shape.begin(), shape.end());
    numbers.push_back(static_cast<std::int64_t>(one.from_type));
    numbers.push_back(static_cast<std::int64_t>(one.to_type));
  }
  return digest_of(numbers);
}

}  // namespace

std::vector<std::string> names_of(const transfer_plan& plan, std::span<const std::string> keys) {
  std::vector<std::string> names(keys.begin(), keys.end());
  if (names.empty())
    for (std::size_t t = 0; t < plan.transfers().size(); ++t) names.push_back(fmt::format("transfer {}", t));
  return names;
}

std::vector<agreement_record> records_of(const transfer_plan& plan, std::span<const std::string> names,
                                         const run_options& run) {
  std::vector<agreement_record> records;
  for (std::size_t t = 0; t < names.size(); ++t) {
    const tensor_transfer& one = plan.transfers()[t];
    if (!run.whole_plan) {
      records.push_back({names[t], fmt::format("{} {} to {}", to_string(one.from.global_shape()), name(one.from_type),
                                               name(one.to_type))});
      continue;
    }
    records.push_back(
        {names[t], fmt::format("{} {} from {} to {} {}", to_string(one.from.global_shape()), name(one.from_type),
                               text_of(one.from), name(one.to_type), text_of(one.to))});
  }
  records.push_back({std::string(options_key), text_of(plan.options(), run)});
  return records;
}

digest128 digest_of_all(const transfer_plan& plan, std::span<const std::string> keys, const run_options& run) {
  std::vector<agreement_record> names;
  for (const std::string& key : keys) names.push_back({key, {}});
  const digest128 moves = run.whole_plan ? plan.digest() : digest_of_outline(plan), called = digest_of(names, true);
  const std::int64_t numbers[] = {static_cast<std::int64_t>(moves.low),  static_cast<std::int64_t>(moves.high),
                                  static_cast<std::int64_t>(called.low), static_cast<std::int64_t>(called.high),
                                  static_cast<std::int64_t>(run.check),  std::int64_t{run.whole_plan}};
  return digest_of(numbers);
}

}  // namespace shardmesh
