// SPDX-License-Identifier: Apache-2.0
module;
#include <lru_cache.hpp>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;
import shardmesh.kernels;
import shardmesh.checkpoint_core;
import :block_codec;
import :block_entry;
import :block_grid;
import :delta_source;
import :description;
import :idle_pool;

namespace shardmesh::delta {
namespace {

// Of blocks that are kept because a read needed a part of them.
constexpr std::int64_t kept_bytes = std::int64_t{16} << 20;
// Elements that are made at a time. Longer runs have fewer blocks that two reads share.
constexpr std::int64_t made_bytes = std::int64_t{4} << 20;

using shared_block = std::shared_ptr<const std::vector<std::byte>>;

}  // namespace

struct block_memory::state {
  explicit state(std::size_t most) : kept(most) {}
  struct decoding {
    block_decoder decoder;
    std::vector<std::byte> stored;
  };
  idle_pool<decoding> decoders;
  std::mutex lock;
  detail::lru_cache<std::pair<std::size_t, std::int64_t>, shared_block> kept;  // by tensor and block
};

block_memory::block_memory(std::int64_t block_bytes)
    : state_(std::make_unique<state>(static_cast<std::size_t>(std::max<std::int64_t>(kept_bytes / block_bytes, 4)))) {}
block_memory::~block_memory() = default;

class delta_source final : public computed_source {
 public:
  delta_source(const delta_input& input, std::size_t tensor, const tensor_entry* base)
      : computed_source(input.described->tensors[tensor].entry.type, input.described->tensors[tensor].entry.shape,
                        input.file->name()),
        input_(input),
        index_(tensor),
        tensor_(input.described->tensors[tensor]),
        base_(base) {}

 private:
  extents piece_sizes(const extents& sizes) const override {
    extents made = extents::filled(sizes.rank(), 1);
    std::int64_t left = std::max(made_bytes, input_.described->block_bytes) / item_bytes(type());
    for (std::size_t d = sizes.rank(); d-- > 0;) {
      made[d] = std::min(sizes[d], std::max<std::int64_t>(left, 1));
      if (made[d] < sizes[d]) break;  // the dimensions before it keep the size 1
      left /= sizes[d];
    }
    return made;
  }

  result<void> make(const box& part, const tensor_view& to) const override {
    return tensor_.grid.for_each_meeting(part, [&](std::int64_t number, const box& block) -> result<void> {
      const auto common = intersect(part, block);
      if (!common) return {};
      const tensor_view target = subview(to, relative_to(*common, part));
      if (*common == block && is_contiguous(target))
        return make_block(number, block, {target.data, static_cast<std::size_t>(bytes_of(block))});
      SHARDMESH_TRY(const auto known, kept(number, block));
      const const_tensor_view whole{known->data(), type(), {}, block.sizes, contiguous_strides(block.sizes)};
      return copy(target, subview(whole, relative_to(*common, block)));
    });
  }

  std::int64_t bytes_of(const box& block) const { return block.volume() * item_bytes(type()); }

  // Returns a whole block for a read of a part. Threads that miss it at the same time make it twice.
  result<shared_block> kept(std::int64_t number, const box& block) const {
    block_memory::state& memory = *input_.memory->state_;
    const std::pair<std::size_t, std::int64_t> key(index_, number);
    {
      const std::scoped_lock guard(memory.lock);
      if (const auto* const known = memory.kept.find(key)) return *known;
    }
    auto made = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes_of(block)));
    SHARDMESH_TRY(make_block(number, block, *made));
    shared_block shared = std::move(made);
    const std::scoped_lock guard(memory.lock);
    memory.kept.insert(key, shared);
    return shared;
  }

  // Fills `out` with the elements of a block, and compares every digest of it.
  result<void> make_block(std::int64_t number, const box& block, std::span<std::byte> out) const {
    const block_entry& entry = input_.described->blocks[tensor_.first_block + static_cast<std::size_t>(number)];
    if (base_ != nullptr) SHARDMESH_TRY(read_base(entry, block, out));
    if (entry.coding == block_coding::same) return {};
    idle_pool<block_memory::state::decoding>& decoders = input_.memory->state_->decoders;
    auto decoding = decoders.take();
    const auto decode = [&]() -> result<void> {
      decoding->stored.resize(static_cast<std::size_t>(entry.stored_bytes));
      SHARDMESH_TRY(input_.file->read(entry.offset, decoding->stored));
      SHARDMESH_TRY(compare("the stored bytes of a block are damaged", entry.stored, xxh3(decoding->stored)));
      SHARDMESH_TRY(decoding->decoder.decode(entry, decoding->stored, item_bytes(type()), out));
      return compare("a block of the delta does not give the new elements", entry.result, xxh3(out));
    };
    auto done = decode();
    decoders.put(std::move(decoding));
    if (done) return done;
    error why = std::move(done).error();
    if (why.file.empty()) why.file = printable_url(name());
    if (why.hint.empty()) why.hint = detail::restore_hint;
    return std::move(why).with_key(tensor_.entry.key).with_box(block);
  }

  result<void> read_base(const block_entry& entry, const box& block, std::span<std::byte> out) const {
    const tensor_view to{out.data(), type(), {}, block.sizes, contiguous_strides(block.sizes)};
    SHARDMESH_TRY((stored_boxes{input_.base, input_.base_chunks, base_}.read(block, to)));
    auto done = compare("the base is not the checkpoint from which the delta was made", entry.base, xxh3(out));
    if (done) return done;
    return std::move(done)
        .error()
        .with_key(tensor_.entry.key)
        .with_file(input_.base->path().string())
        .with_box(block)
        .with_hint("apply the delta to that checkpoint");
  }

  static result<void> compare(const char* message, const digest128& expected, const digest128& found) {
    if (found == expected) return {};
    return fail(errc::checksum_mismatch, message).with_values("xxh3-128 " + to_hex(expected), to_hex(found));
  }

  delta_input input_;
  std::size_t index_;
  const described_tensor& tensor_;
  const tensor_entry* base_;
};

std::shared_ptr<const byte_source> make_delta_source(const delta_input& input, std::size_t tensor,
                                                     const tensor_entry* base) {
  return std::make_shared<const delta_source>(input, tensor, base);
}

}  // namespace shardmesh::delta
