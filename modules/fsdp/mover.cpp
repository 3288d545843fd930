// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
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

result<void> run_transfers(const result<void>& mine, bound_transfers work, communicator_ref comm,
                           const plan_options& options, const call_options& call, fsdp_profile& profile) {
  std::optional<result<transfer_plan>> planned;
  {
    const stopwatch watch(profile.plan_seconds);
    planned.emplace(mine ? plan(std::move(work.transfers), options) : result<transfer_plan>(mine.error()));
  }
  std::optional<executor> runner;
  {
    const stopwatch watch(profile.agree_seconds);
    SHARDMESH_TRY(runner, executor::make(*std::move(planned), comm, std::move(work.keys), {}, call));
  }
  profile.bytes_moved += runner->moved_bytes();
  profile.sent_bytes += runner->sent_bytes();
  profile.received_bytes += runner->received_bytes();
  profile.peak_bytes = std::max(profile.peak_bytes, runner->plan().for_owner(comm.rank()).peak_bytes());
  const stopwatch watch(profile.move_seconds);
  return runner->run(work.from, work.to, call);
}

// Checks that backends reach all memory that is read or filled, before anything is allocated or moved.
result<void> check_memory(std::span<const planned_entry> planned) {
  for (const planned_entry& entry : planned) {
    const auto check = [&](device where) -> result<void> {
      if (auto held = check_reachable(where); !held) return std::move(held).error().with_key(entry.key);
      return {};
    };
    for (const const_tensor_view& view : entry.source.slots) SHARDMESH_TRY(check(view.where));
    if (entry.has_part) SHARDMESH_TRY(check(entry.where));
  }
  return {};
}

result<void> check_unit_of(const fsdp_unit& unit, communicator_ref comm) {
  const std::string key = joined_key(clean_key(unit.prefix), flat_parameter_key);
  if (unit.group.ranks() != comm.size())
    return fail(errc::invalid_argument, "the group of a unit is over another communicator")
        .with_key(key)
        .with_values(detail::counted(comm.size(), "rank"), std::to_string(unit.group.ranks()));
  const auto position = unit.group.position(comm.rank());
  if (!position) return {};
  if (auto slots = flat_slots(unit.parameters, *position, unit.shard); !slots)
    return std::move(slots).error().with_rank(comm.rank());
  return {};
}

result<entry_mover> entry_mover::start(result<std::vector<planned_entry>> planned, std::optional<communicator_ref> comm,
                                       std::int64_t memory_bytes, const call_options& call) {
  entry_mover made;
  made.comm_ = comm;
  made.memory_bytes_ = memory_bytes;
  made.call_ = call;
  if (planned)
    if (auto held = check_memory(*planned); !held) planned = std::move(held).error();
  if (comm) {
    const stopwatch watch(made.profile_.agree_seconds);
    std::vector<agreement_record> records;
    if (planned)
      for (const planned_entry& entry : *planned)
        records.push_back({entry.key, fmt::format("{} {}{}", to_string(entry.shape), name(entry.type),
                                                  entry.transfer  ? ", sharded"
                                                  : entry.same_as ? ", as " + (*planned)[*entry.same_as].key
                                                                  : "")});
    agree_options options{.what = "entries", .ordered = true};
    if (!planned) options.problem = &planned.error();
    SHARDMESH_TRY(agree(*comm, records, options, call));
  }
  if (!planned) return std::move(planned).error();
  made.planned_ = *std::move(planned);
  made.other_names_.resize(made.planned_.size());
  for (std::size_t i = 0; i < made.planned_.size(); ++i)
    if (made.planned_[i].same_as) made.other_names_[*made.planned_[i].same_as].push_back(i);
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
    if (memory_bytes <= 0 || planned_[last].same_as) continue;
    sum += largest_part(planned_[last]) * static_cast<std::int64_t>(1 + other_names_[last].size());
    if (last > first && sum > memory_bytes) break;
  }
  return {first, last};
}

result<void> entry_mover::move(std::size_t first, std::size_t last, std::span<const tensor_view> results,
                               const result<void>& mine) {
  bound_transfers work;
  result<void> done = mine;
  for (std::size_t i = first; i < last; ++i) {
    planned_entry& entry = planned_[i];
    if (entry.same_as) continue;
    if (entry.transfer) {
      work.transfers.push_back(*entry.transfer);
      work.keys.push_back(entry.key);
      work.from.push_back(std::move(entry.source));
      work.to.emplace_back();
      if (entry.has_part) work.to.back().slots.push_back(results[i - first]);
    } else if (done && entry.has_part && !entry.source.slots.empty()) {
      done = copy_between(results[i - first], entry.source.slots[0]);
      if (!done) done = std::move(done).error().with_key(entry.key);
    }
  }
  if (!work.transfers.empty())
    return run_transfers(done, std::move(work), *comm_, {.memory_bytes = memory_bytes_}, call_, profile_);
  if (!done) abort(done.error());
  return done;
}

result<void> entry_mover::finish() {
  if (comm_) SHARDMESH_TRY(comm_->all_gather({}, call_));
  return {};
}

void entry_mover::abort(const error& reason) {
  if (comm_) comm_->abort(reason);
}

}  // namespace shardmesh::detail
