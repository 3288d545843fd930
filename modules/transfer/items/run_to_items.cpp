// SPDX-License-Identifier: Apache-2.0
// Moves tensors from files to files: each thread moves one tensor at a time, slab by slab.
module;
#include <fmt/core.h>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

namespace shardmesh {
namespace actions = ranges::actions;
namespace {

constexpr std::int64_t largest_slab_bytes = std::int64_t{8} << 20;  // larger ones do not fit the caches
constexpr std::int64_t large_read_bytes = std::int64_t{64} << 20;   // of items that prefer large reads

// The fragments that intersect `where`, one per distinct box. Replicas hold the same bytes, so the first in owner order
// is used.
std::vector<fragment> distinct_holders(const distribution& from, const box& where) {
  std::vector<fragment> found;
  from.overlapping(where, [&](const fragment& f) { return found.push_back(f), true; });
  const auto box_first = [](const fragment& f) { return std::tie(f.where, f.owner, f.slot); };
  const auto in_items = [](const fragment& f) { return std::tie(f.owner, f.slot); };
  return std::move(found) | actions::sort(ranges::less{}, box_first) |
         actions::unique(ranges::equal_to{}, &fragment::where) | actions::sort(ranges::less{}, in_items);
}

// Converts `where`, a box of the global tensor inside f's, to the index space of f's buffer.
box in_buffer(const fragment& f, const box& where) {
  return shifted(relative_to(where, f.where), f.local_offsets);
}

class buffer {
 public:
  std::byte* reserve(std::int64_t bytes) {
    if (bytes > capacity_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
      capacity_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t capacity_ = 0;
};

struct outgoing {
  fragment to;
  box part;           // of the global tensor
  tensor_view bytes;  // row-major
};

class tensor_run {
 public:
  tensor_run(const tensor_transfer& transfer, const any_item_source& source, const any_item_sink& sink,
             const item_run_options& options, std::int64_t slab_bytes)
      : transfer_(transfer), source_(source), sink_(sink), options_(options), slab_bytes_(slab_bytes) {}

  result<void> run() {
    const box whole = box::whole(transfer_.to.global_shape());
    if (bits(transfer_.from_type) % 8 != 0) return run_whole(whole);
    const std::int64_t widest = std::max(item_bytes(transfer_.from_type), item_bytes(transfer_.to_type));
    std::int64_t most = std::min(slab_bytes_, largest_slab_bytes) / widest;
    if (slab_bytes_ > largest_slab_bytes && whole.volume() > most && prefers_large_reads(whole))
      most = slab_bytes_ / widest;
    slab_walk walk(whole, most);
    while (const auto slab = walk.next()) {
      SHARDMESH_TRY(check_interruption(options_));
      SHARDMESH_TRY(move(*slab));
    }
    return {};
  }

 private:
  // Asks the first item that holds a part of the tensor.
  bool prefers_large_reads(const box& whole) const {
    bool prefers = false;
    transfer_.from.overlapping(whole, [&](const fragment& f) {
      prefers = source_.prefers_large_reads({f.owner, f.slot});
      return false;
    });
    return prefers;
  }

  // Moves a tensor of a sub-byte type, which is never cut: one holder to one receiver.
  result<void> run_whole(const box& whole) {
    const auto holders = distinct_holders(transfer_.from, whole);
    const auto receivers = distinct_holders(transfer_.to, whole);
    if (holders.empty() && receivers.empty()) return {};
    if (holders.size() != 1 || receivers.size() != 1 || holders[0].where != whole || receivers[0].where != whole ||
        transfer_.from_type != transfer_.to_type)
      return fail(errc::unaligned, fmt::format("{} cannot be cut or cast", name(transfer_.from_type)));
    SHARDMESH_TRY(host_tensor all, host_tensor::make(transfer_.from_type, whole.sizes));
    SHARDMESH_TRY(source_.read({holders[0].owner, holders[0].slot}, whole, adapter<host_tensor>::view(all)));
    return sink_.write({receivers[0].owner, receivers[0].slot}, 0, all.bytes());
  }

  result<void> move(const box& slab) {
    std::vector<outgoing> parts = outgoing_parts(slab);
    if (parts.empty()) return {};
    std::int64_t missing = 0;
    for (const outgoing& part : parts) missing += part.part.volume();
    for (const fragment& holder : distinct_holders(transfer_.from, slab)) {
      const auto held = intersect(holder.where, slab);
      SHARDMESH_TRY(const std::int64_t delivered, deliver(holder, *held, parts));
      missing -= delivered;
    }
    if (missing != 0)
      return fail(missing > 0 ? errc::gap : errc::overlap,
                  missing > 0 ? "some cells are held by no owner" : "some cells are held twice")
          .with_box(slab);
    for (const outgoing& part : parts) SHARDMESH_TRY(write(part));
    return {};
  }

  std::vector<outgoing> outgoing_parts(const box& slab) {
    std::vector<outgoing> parts;
    std::int64_t total = 0;
    transfer_.to.overlapping(slab, [&](const fragment& f) {
      parts.push_back({f, *intersect(f.where, slab), {}});
      total += parts.back().part.volume();
      return true;
    });
    std::byte* at = out_.reserve(total * item_bytes(transfer_.to_type));
    for (outgoing& part : parts) {
      part.bytes = {at, transfer_.to_type, {}, part.part.sizes, contiguous_strides(part.part.sizes)};
      at += part.part.volume() * item_bytes(transfer_.to_type);
    }
    return parts;
  }

  // Reads `held` of `holder` once and copies it into every part that intersects it.
  result<std::int64_t> deliver(const fragment& holder, const box& held, std::span<outgoing> parts) {
    std::vector<std::pair<outgoing*, box>> receivers;
    for (outgoing& part : parts)
      if (const auto common = intersect(part.part, held)) receivers.emplace_back(&part, *common);
    const item_id item{holder.owner, holder.slot};
    std::int64_t delivered = 0;
    for (const auto& [part, common] : receivers) delivered += common.volume();
    if (receivers.size() == 1) {
      const auto& [part, common] = receivers.front();
      SHARDMESH_TRY(
          source_.read(item, in_buffer(holder, common), subview(part->bytes, relative_to(common, part->part))));
    } else if (!receivers.empty()) {
      std::byte* memory = scratch_.reserve(held.volume() * item_bytes(transfer_.from_type));
      const tensor_view staged{memory, transfer_.from_type, {}, held.sizes, contiguous_strides(held.sizes)};
      SHARDMESH_TRY(source_.read(item, in_buffer(holder, held), staged));
      for (const auto& [part, common] : receivers)
        SHARDMESH_TRY(
            copy(subview(part->bytes, relative_to(common, part->part)), subview(staged, relative_to(common, held))));
    }
    return delivered;
  }

  result<void> write(const outgoing& part) {
    // The part is contiguous in the destination, so the offset of its first element is enough.
    const extents strides = contiguous_strides(part.to.where.sizes);
    std::int64_t first = 0;
    for (std::size_t d = 0; d < part.part.rank(); ++d)
      first += (part.part.offsets[d] - part.to.where.offsets[d]) * strides[d];
    const auto bytes = static_cast<std::size_t>(part.part.volume() * item_bytes(transfer_.to_type));
    SHARDMESH_TRY(
        sink_.write({part.to.owner, part.to.slot}, first * item_bytes(transfer_.to_type), {part.bytes.data, bytes}));
    if (options_.progress) options_.progress(static_cast<std::int64_t>(bytes));
    return {};
  }

  const tensor_transfer& transfer_;
  const any_item_source& source_;
  const any_item_sink& sink_;
  const item_run_options& options_;
  std::int64_t slab_bytes_;
  buffer scratch_, out_;
};

}  // namespace

result<void> run_to_items(std::span<const tensor_transfer> transfers, std::span<const std::string> keys,
                          any_item_source source, any_item_sink sink, const item_run_options& options) {
  if (options.memory_bytes < least_run_bytes)
    return fail(errc::no_memory, "the memory budget is too small")
        .with_values(fmt::format("at least {} bytes", least_run_bytes), fmt::format("{}", options.memory_bytes));
  const auto threads = static_cast<int>(
      std::clamp<std::int64_t>(options.memory_bytes / least_run_bytes, 1, thread_count(options.threads)));
  // Each thread holds a slab as read, the same slab as written, and the staging of one read (1 MiB).
  const std::int64_t slab = std::min((options.memory_bytes / threads - (1 << 20)) / 3, large_read_bytes);
  // The largest tensors go first, so that the threads end together.
  std::vector<std::size_t> order(transfers.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto numel_of = [&](std::size_t i) { return box::whole(transfers[i].to.global_shape()).volume(); };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(numel_of(b), a) < std::pair(numel_of(a), b); });
  return parallel_for(threads, static_cast<std::int64_t>(order.size()), [&](std::int64_t i) -> result<void> {
    const std::size_t which = order[static_cast<std::size_t>(i)];
    auto done = tensor_run(transfers[which], source, sink, options, slab).run();
    if (done || keys.empty() || !done.error().key.empty()) return done;
    return std::move(done).error().with_key(keys[which]);
  });
}

}  // namespace shardmesh
