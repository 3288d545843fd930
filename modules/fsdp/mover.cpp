// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <try.hpp>
module shardmesh.fsdp;

namespace shardmesh::detail {
namespace {

class stopwatch {
 public:
  explicit stopwatch(double& sum) : sum_(sum) {}
  ~stopwatch() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& sum_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

result<void> run_transfers(std::vector<tensor_transfer> transfers, std::vector<std::string> keys,
                           std::span<const tensor_binding> from, std::span<const tensor_binding> to,
                           any_communicator& comm, const plan_options& options, const call_options& call,
                           fsdp_profile& profile) {
  std::optional<transfer_plan> planned;
  {
    const stopwatch watch(profile.plan_seconds);
    SHARDMESH_TRY(planned, plan(std::move(transfers), options));
    const rank_plan own = planned->for_owner(comm.rank());
    profile.bytes_moved += planned->bytes_moved();
    profile.sent_bytes += own.sent_bytes();
    profile.received_bytes += own.received_bytes();
    profile.peak_bytes = std::max(profile.peak_bytes, own.peak_bytes());
  }
  std::optional<executor> runner;
  {
    const stopwatch watch(profile.agree_seconds);
    SHARDMESH_TRY(runner, executor::make(*std::move(planned), comm, std::move(keys), {}, call));
  }
  const stopwatch watch(profile.move_seconds);
  return runner->run(from, to, call);
}

result<void> check_unit_of(const fsdp_unit& unit, const any_communicator& comm) {
  const std::string key = joined_key(clean_key(unit.prefix), flat_parameter_key);
  if (unit.group.ranks() != comm.size())
    return fail(errc::invalid_argument, "the group of a unit is over another communicator")
        .with_key(key)
        .with_values(fmt::format("{} ranks", comm.size()), std::to_string(unit.group.ranks()));
  const auto position = unit.group.position(comm.rank());
  if (!position) return {};
  if (auto slots = flat_slots(unit.parameters, *position, unit.shard); !slots)
    return std::move(slots).take_error().with_rank(comm.rank());
  return {};
}

result<entry_mover> entry_mover::start(result<std::vector<planned_entry>> planned, any_communicator* comm,
                                       std::int64_t memory_bytes, const call_options& call) {
  entry_mover made;
  made.comm_ = comm;
  made.memory_bytes_ = memory_bytes;
  made.call_ = call;
  if (comm) {
    const stopwatch watch(made.profile_.agree_seconds);
    std::vector<agreement_record> records;
    if (planned)
      for (const planned_entry& entry : *planned)
        records.push_back({entry.key, fmt::format("{} {}{}", to_string(entry.shape), name(entry.type),
                                                  entry.transfer ? ", sharded" : "")});
    agree_options options{.what = "entries", .ordered = true};
    if (!planned) options.problem = &planned.cause();
    SHARDMESH_CHECK(agree(*comm, records, options, call));
  }
  if (!planned) return std::move(planned).take_error();
  made.planned_ = *std::move(planned);
  made.profile_.entries = static_cast<std::int64_t>(made.planned_.size());
  return made;
}

std::int64_t entry_mover::largest_part(const planned_entry& entry) {
  std::int64_t most = 0;
  if (entry.transfer) {
    const distribution& to = entry.transfer->to;
    to.for_each_owner([&](owner_id owner) {
      std::int64_t held = 0;
      to.fragments_of(owner, [&](const fragment& f) { return held += f.where.volume(), true; });
      most = std::max(most, held);
    });
  } else {
    most = checked_volume(entry.shape).value_or(0);
  }
  return most * (bits(entry.type) / 8);
}

std::pair<std::size_t, std::size_t> entry_mover::next_run(std::size_t first, std::int64_t memory_bytes) const {
  std::size_t last = first;
  for (std::int64_t sum = 0; last < planned_.size(); ++last) {
    if (memory_bytes <= 0) continue;
    sum += largest_part(planned_[last]);
    if (last > first && sum > memory_bytes) break;
  }
  return {first, last};
}

result<void> entry_mover::move(std::size_t first, std::size_t last, std::span<const tensor_view> results) {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  std::vector<tensor_binding> from, to;
  for (std::size_t i = first; i < last; ++i) {
    planned_entry& entry = planned_[i];
    if (entry.transfer) {
      transfers.push_back(*entry.transfer);
      keys.push_back(entry.key);
      from.push_back(std::move(entry.source));
      to.emplace_back();
      if (entry.has_part) to.back().slots.push_back(results[i - first]);
    } else if (entry.has_part && !entry.source.slots.empty()) {
      if (auto copied = copy(results[i - first], entry.source.slots[0]); !copied)
        return std::move(copied).take_error().with_key(entry.key);
    }
  }
  if (transfers.empty()) return {};
  return run_transfers(std::move(transfers), std::move(keys), from, to, *comm_, {.memory_bytes = memory_bytes_}, call_,
                       profile_);
}

void entry_mover::abort(const error& reason) {
  if (comm_) comm_->abort(reason);
}

}  // namespace shardmesh::detail
