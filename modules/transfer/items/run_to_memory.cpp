// SPDX-License-Identifier: Apache-2.0
// Files to tensors in memory. Reads are grouped by source item, so that each item is opened once and shared ranges are
// read once. Large tensors are cut into units for the threads; small ones go to a thread in bundles. A model of 20,000
// tensors is thus read in file order, and a tensor's metadata stays in the cache until its read.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :read_units;
import :unit_read;

namespace shardmesh {
namespace {

constexpr std::int64_t bundle_bytes = std::int64_t{1} << 20;     // of small tensors in one bundle
constexpr std::int64_t read_cost_bytes = std::int64_t{4} << 10;  // fixed cost of a read, as bytes

using target_span = std::span<const memory_target* const>;

class memory_run {
 public:
  memory_run(std::span<const distribution> from, std::span<const std::string> keys, const any_item_source& source,
             const item_run_options& options)
      : from_(from),
        keys_(keys),
        source_(source),
        options_(options),
        planner_(from, keys, source),
        spare_(thread_count(options.threads)) {}

  result<void> run(std::span<const memory_target> targets) {
    std::vector<const memory_target*> large, small;
    small.reserve(targets.size());
    for (const memory_target& target : targets) {
      SHARDMESH_TRY(check(target));
      if (!target.where.is_empty()) (is_small(target) ? small : large).push_back(&target);
    }
    open_items(large);
    SHARDMESH_TRY(const work_list cut, planner_.plan(large));
    const std::vector<target_span> bundles = bundles_of(small);
    const auto units = static_cast<std::int64_t>(cut.units.size());
    return parallel_for(
        options_.threads, units + static_cast<std::int64_t>(bundles.size()), [&](std::int64_t i) -> result<void> {
          if (i < units) return read(cut.units[static_cast<std::size_t>(i)]);
          SHARDMESH_TRY(const work_list together, planner_.plan(bundles[static_cast<std::size_t>(i - units)]));
          for (const read_unit& one : together.units) SHARDMESH_TRY(read(one));
          return {};
        });
  }

 private:
  std::string name_of(std::size_t transfer) const { return keys_.empty() ? std::string() : keys_[transfer]; }

  result<void> check(const memory_target& target) const {
    const extents& shape = from_[target.transfer].global_shape();
    if (target.where.sizes != target.to.sizes || target.where.rank() != shape.rank() ||
        !lies_within(target.where, box::whole(shape)))
      return fail(errc::shape_mismatch, "the sizes of the target are not those of the requested box")
          .with_key(name_of(target.transfer))
          .with_box(target.where)
          .with_values(to_string(target.where.sizes), to_string(target.to.sizes));
    if (auto held = check_reachable(target.to); !held)
      return std::move(held).error().with_key(name_of(target.transfer)).with_box(target.where);
    return {};
  }

  // Opens items on a server on all threads: the planner would open one after another, each with requests.
  void open_items(target_span targets) const {
    if (targets.size() < 2 || !prefers_large_reads(*targets.front())) return;
    const auto done =
        parallel_for(options_.threads, static_cast<std::int64_t>(targets.size()), [&](std::int64_t i) -> result<void> {
          const memory_target& target = *targets[static_cast<std::size_t>(i)];
          from_[target.transfer].overlapping(target.where, [&](const fragment& f) {
            static_cast<void>(source_.reads_in_order({f.owner, f.slot}));
            return true;
          });
          return {};
        });
    static_cast<void>(done);  // the read of an item that cannot be opened reports the error
  }

  // Asks the first item that holds a part of the target.
  bool prefers_large_reads(const memory_target& target) const {
    bool prefers = false;
    from_[target.transfer].overlapping(target.where, [&](const fragment& f) {
      prefers = source_.prefers_large_reads({f.owner, f.slot});
      return false;
    });
    return prefers;
  }

  // Decides by the size of the whole tensor: a part of a large one may need decoding from the beginning, or share its
  // reads with other parts.
  bool is_small(const memory_target& target) const {
    return box::whole(from_[target.transfer].global_shape()).volume() <= bundle_bytes * 8 / bits(target.to.type);
  }

  // All targets of a tensor go into one bundle.
  static std::vector<target_span> bundles_of(std::vector<const memory_target*>& targets) {
    const auto by_transfer = [](const memory_target* a, const memory_target* b) { return a->transfer < b->transfer; };
    if (!std::is_sorted(targets.begin(), targets.end(), by_transfer))
      std::stable_sort(targets.begin(), targets.end(), by_transfer);
    std::vector<target_span> made;
    std::int64_t bytes = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      bytes += targets[i]->where.volume() * bits(targets[i]->to.type) / 8 + read_cost_bytes;
      const bool is_last = i + 1 == targets.size();
      if (!is_last && (bytes < bundle_bytes || targets[i]->transfer == targets[i + 1]->transfer)) continue;
      made.push_back(target_span(targets).subspan(first, i + 1 - first));
      first = i + 1;
      bytes = 0;
    }
    return made;
  }

  result<void> read(const read_unit& work) {
    auto done = read_to_memory(source_, work, spare_, options_);
    if (done || !done.error().key.empty()) return done;
    return std::move(done).error().with_key(name_of(work.demands.front().target->transfer));
  }

  std::span<const distribution> from_;
  std::span<const std::string> keys_;
  const any_item_source& source_;
  const item_run_options& options_;
  read_planner planner_;
  spare_buffers spare_;
};

}  // namespace

result<void> check_interruption(const item_run_options& options) {
  SHARDMESH_TRY(detail::check_current_call());  // its error names the call
  return detail::check_limits(options.call, "transfer");
}

result<void> run_to_memory(std::span<const distribution> from, std::span<const std::string> keys,
                           std::span<const memory_target> targets, any_item_source source,
                           const item_run_options& options) {
  return memory_run(from, keys, source, options).run(targets);
}

}  // namespace shardmesh
