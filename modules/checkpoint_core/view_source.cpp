// SPDX-License-Identifier: Apache-2.0
module;
#include <range/v3/algorithm/sort.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

// Bytes that are written between two checks for cancellation.
constexpr std::size_t piece_bytes = std::size_t{8} << 20;

// A run of an item's bytes in memory.
struct plain_run {
  std::int64_t first_byte = 0;
  std::span<const std::byte> bytes;
  std::size_t holder = 0;  // the holder's position in owner order
};

// An item that lies entirely in memory; its runs are ordered front to back.
struct plain_item {
  item_id item;
  std::size_t transfer = 0;
  std::int64_t size_bytes = 0;
  std::vector<plain_run> runs;
};

// Returns the index of the part's first element in the row-major order of `whole`; nothing when the part is not
// contiguous there.
std::optional<std::int64_t> first_element(const box& part, const box& whole) {
  const extents strides = contiguous_strides(whole.sizes);
  if (!is_contiguous(part.sizes, strides)) return std::nullopt;
  std::int64_t first = 0;
  for (std::size_t d = 0; d < part.rank(); ++d) first += (part.offsets[d] - whole.offsets[d]) * strides[d];
  return first;
}

// Returns nothing when some of the item lies elsewhere, with gaps, or in another dtype. Also returns nothing when
// elements are missing or overlap: `run_to_items` refuses those.
std::optional<plain_item> in_memory(const tensor_transfer& transfer, const view_source& source, const fragment& to) {
  std::vector<fragment> holders;
  transfer.from.overlapping(to.where, [&](const fragment& f) { return holders.push_back(f), true; });
  ranges::sort(holders, {}, [](const fragment& f) { return std::tie(f.owner, f.slot); });
  const std::int64_t width = item_bytes(transfer.to_type);
  plain_item made{{to.owner, to.slot}, 0, to.where.volume() * width, {}};
  for (const fragment& holder : holders) {
    const const_tensor_view& view = source.views[static_cast<std::size_t>(holder.slot)];
    const box common = *intersect(holder.where, to.where);
    const auto first = first_element(common, to.where);
    if (!first || view.where.type != device_type::cpu || view.type != transfer.to_type) return std::nullopt;
    const const_tensor_view part = subview(view, shifted(relative_to(common, holder.where), holder.local_offsets));
    if (!is_contiguous(part)) return std::nullopt;
    made.runs.push_back(
        {*first * width, {part.data, static_cast<std::size_t>(common.volume() * width)}, made.runs.size()});
  }
  std::ranges::sort(made.runs, {}, [](const plain_run& run) { return std::pair(run.first_byte, run.holder); });
  // Uses the first replica in owner order.
  const auto same = [](const plain_run& a, const plain_run& b) {
    return a.first_byte == b.first_byte && a.bytes.size() == b.bytes.size();
  };
  made.runs.erase(std::unique(made.runs.begin(), made.runs.end(), same), made.runs.end());
  std::int64_t end = 0;
  for (const plain_run& run : made.runs) {
    if (run.first_byte != end) return std::nullopt;
    end += static_cast<std::int64_t>(run.bytes.size());
  }
  if (end != made.size_bytes) return std::nullopt;
  return made;
}

// Appends all items of a transfer, or none of them.
bool take_plain_items(const tensor_transfer& transfer, std::size_t number, const view_source& source,
                      std::vector<plain_item>& items) {
  if (transfer.from_type != transfer.to_type || bits(transfer.to_type) % 8 != 0) return false;
  const std::size_t before = items.size();
  transfer.to.overlapping(box::whole(transfer.to.global_shape()), [&](const fragment& to) {
    if (to.where.is_empty()) return true;
    auto found = in_memory(transfer, source, to);
    if (!found) return items.resize(before), false;
    found->transfer = number;
    items.push_back(*std::move(found));
    return true;
  });
  return items.size() > before;
}

result<void> write_plain(const plain_item& item, const any_item_sink& sink, const item_run_options& options) {
  for (const plain_run& run : item.runs)
    for (std::size_t at = 0; at < run.bytes.size(); at += piece_bytes) {
      SHARDMESH_TRY(detail::check_current_call());  // its error names the call
      SHARDMESH_TRY(detail::check_limits(options.call, "transfer"));
      const auto piece = run.bytes.subspan(at, std::min(piece_bytes, run.bytes.size() - at));
      SHARDMESH_TRY(sink.write(item.item, run.first_byte + static_cast<std::int64_t>(at), piece));
      if (options.progress) options.progress(static_cast<std::int64_t>(piece.size()));
    }
  return {};
}

}  // namespace

result<void> write_items(std::span<const tensor_transfer> transfers, std::span<const std::string> keys,
                         element_source source, any_item_sink sink, const item_run_options& options) {
  if (source.views() == nullptr) return run_to_items(transfers, keys, source.items(), sink, options);
  std::vector<plain_item> plain;
  std::vector<tensor_transfer> rest;
  std::vector<std::string> rest_keys;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (take_plain_items(transfers[i], i, *source.views(), plain)) continue;
    rest.push_back(transfers[i]);
    if (!keys.empty()) rest_keys.push_back(keys[i]);
  }
  SHARDMESH_TRY(run_to_items(rest, rest_keys, source.items(), sink, options));
  // Largest first, so that the threads finish together. Not range-v3's stable_sort: from 257 elements on it moves them
  // through a buffer and loses what they own.
  std::ranges::sort(plain, {}, [](const plain_item& one) {
    return std::tuple(-one.size_bytes, one.transfer, one.item.owner, one.item.slot);
  });
  return parallel_for(options.threads, static_cast<std::int64_t>(plain.size()), [&](std::int64_t i) -> result<void> {
    const plain_item& item = plain[static_cast<std::size_t>(i)];
    auto done = write_plain(item, sink, options);
    if (done || keys.empty() || !done.error().key.empty()) return done;
    return std::move(done).error().with_key(keys[item.transfer]);
  });
}

}  // namespace shardmesh
