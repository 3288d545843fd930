// SPDX-License-Identifier: Apache-2.0
// Carries out transfers from items: to other items in bounded memory, and to tensors at the speed of reads. Ranks that
// exchange messages are in `executor`; file formats are in checkpoint.
export module shardmesh.transfer:run_items;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :items;
import :plan;

export namespace shardmesh {

/// The default staging memory of work that goes through files, over all threads together.
inline constexpr std::int64_t default_memory_bytes = std::int64_t{1} << 30;

/// The options of `run_to_items` and `run_to_memory`: threads, memory, progress, and cancellation.
struct item_run_options {
  std::int64_t memory_bytes = default_memory_bytes;    // of run_to_items: staging of all threads together
  int threads = 0;                                     // 0: all cores
  call_options call{};                                 // deadline and cancellation
  std::function<void(std::int64_t bytes)> progress{};  // called from any thread with the bytes that were just moved
};

}  // namespace shardmesh

namespace shardmesh {

// Fails if the run must stop: errc::cancelled, errc::deadline_exceeded.
result<void> check_interruption(const item_run_options& options);

}  // namespace shardmesh

export namespace shardmesh {

/// The least `memory_bytes` that `run_to_items` accepts; one thread needs this much.
inline constexpr std::int64_t least_run_bytes = std::int64_t{4} << 20;

/// Writes every fragment of each transfer's `to` (owners are items of `sink`) from its `from` (items of `source`). Each
/// source item is read once and each destination item is written once, both front to back. A tensor is cut into slabs
/// that are contiguous in every item of either side, so memory is bounded for any two layouts. `keys` names the
/// transfers in errors (empty, or one per transfer).
/// \errors those of source and sink, with the key; errc::gap if `from` does not hold a cell that `to` wants;
///         errc::overlap if `from` holds a cell twice; errc::unaligned if a sub-byte type would be cut or cast;
///         errc::no_memory if the budget is below `least_run_bytes`; errc::cancelled, errc::deadline_exceeded.
result<void> run_to_items(std::span<const tensor_transfer> transfers, std::span<const std::string> keys,
                          any_item_source source, any_item_sink sink, const item_run_options& options = {});

/// A box of a tensor to read into memory: `where` in the global tensor, `to` with equal sizes.
struct memory_target {
  std::size_t transfer = 0;  // index into the distributions below
  box where;
  tensor_view to;
};

/// Fills every target from the items of its distribution. Data that is contiguous on both sides is read straight into
/// the target. A source range that several targets share is read once.
/// \errors as `run_to_items`; errc::shape_mismatch (the sizes of a target differ from its box, or the box lies outside
///         the tensor) and errc::unsupported (memory that no backend reaches), both before anything is read. Targets
///         that were not reached hold unspecified values.
result<void> run_to_memory(std::span<const distribution> from, std::span<const std::string> keys,
                           std::span<const memory_target> targets, any_item_source source,
                           const item_run_options& options = {});

}  // namespace shardmesh
