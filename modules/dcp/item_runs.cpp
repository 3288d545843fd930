// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :item_runs;

namespace shardmesh::dcp {
namespace {

constexpr std::int64_t small_item_bytes = 4096, near_bytes = 1 << 14, run_bytes = 5 * near_bytes;

// An item whose bytes are in memory, together with those of other items. All other calls go to its file.
class kept_item final : public byte_source {
 public:
  // `begin`: the item's position in `bytes`.
  kept_item(std::shared_ptr<const byte_source> item, std::shared_ptr<const std::vector<std::byte>> bytes,
            std::int64_t begin)
      : item_(std::move(item)), bytes_(std::move(bytes)), begin_(begin) {}
  std::int64_t size_bytes() const override { return item_->size_bytes(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const bool is_inside = offset >= 0 && offset <= size_bytes() && std::ssize(out) <= size_bytes() - offset;
    if (!is_inside) return item_->read(offset, out);  // which returns the error
    std::copy_n(bytes_->begin() + begin_ + offset, out.size(), out.begin());
    return {};
  }
  std::string name() const override { return item_->name(); }
  std::optional<file_range> plain_file() const override { return item_->plain_file(); }
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return item_->stored_bytes(offset, length);
  }

 private:
  std::shared_ptr<const byte_source> item_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  std::int64_t begin_;
};

}  // namespace

std::shared_ptr<const byte_source> item_runs::with_bytes(const stored_range& place,
                                                         std::shared_ptr<const byte_source> item) {
  if (place.length > small_item_bytes) return item;
  run_of_items& run = runs_[static_cast<std::size_t>(place.file) % runs_.size()];
  const auto held = run.lock.acquire();
  if (!held) return item;  // its read ends at the same limit
  const std::int64_t end = place.offset + place.length;
  if (run.file != place.file) {
    run.file = place.file;
    run.bytes.reset();
    run.last_end = end;
  }
  const std::int64_t run_end = run.bytes ? run.begin + std::ssize(*run.bytes) : 0;
  if (!run.bytes || place.offset < run.begin || end > run_end) {
    const bool goes_on = run.bytes && place.offset >= run.begin && place.offset - run_end <= near_bytes;
    const bool follows = place.offset >= run.last_end && place.offset - run.last_end <= near_bytes;
    // Other threads may be a few items behind: their items are read again as well.
    const std::int64_t begin =
        goes_on ? std::min(place.offset, std::max(run.begin, run_end - near_bytes)) : place.offset;
    const auto whole = files_.open(place.file);
    if (!whole) return item;
    const std::int64_t left = (*whole)->size_bytes() - begin;
    auto bytes = std::make_shared<std::vector<std::byte>>(
        static_cast<std::size_t>(goes_on || follows ? std::min(left, run_bytes) : place.length));
    if (!(*whole)->read(begin, *bytes)) return item;
    run.last_end = end;
    if (!goes_on && !follows && run.bytes)  // another thread may continue the run
      return std::make_shared<kept_item>(std::move(item), std::move(bytes), 0);
    run.bytes = std::move(bytes);
    run.begin = begin;
  }
  run.last_end = end;
  return std::make_shared<kept_item>(std::move(item), run.bytes, place.offset - run.begin);
}

}  // namespace shardmesh::dcp
