// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :item_ends;

namespace shardmesh::dcp {
namespace {

constexpr std::int64_t end_bytes = 8192;  // at each end, as `windowed_source` reads them
constexpr std::int64_t most_gap_bytes = 4 * end_bytes;
constexpr int files_at_a_time = 8;

// Bytes of a file, from `begin` on.
struct run {
  std::int64_t begin = 0;
  std::vector<std::byte> bytes{};
  std::int64_t end() const { return begin + std::ssize(bytes); }
};
using runs = std::vector<run>;  // ascending, with gaps between them

// Returns the bytes of a range of the file; null if no run has all of them.
const std::byte* bytes_at(const runs& kept, std::int64_t begin, std::int64_t length) {
  const auto after =
      std::upper_bound(kept.begin(), kept.end(), begin, [](std::int64_t at, const run& one) { return at < one.begin; });
  if (after == kept.begin()) return nullptr;
  const run& one = *std::prev(after);
  return length > one.end() - begin ? nullptr : one.bytes.data() + (begin - one.begin);
}

class item_with_ends final : public byte_source {
 public:
  item_with_ends(std::shared_ptr<const byte_source> file, const stored_range& place, std::shared_ptr<const runs> kept)
      : item_(std::move(file), place.offset, place.length), begin_(place.offset), kept_(std::move(kept)) {}
  std::int64_t size_bytes() const override { return item_.size_bytes(); }
  std::string name() const override { return item_.name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const bool is_inside = offset >= 0 && offset <= size_bytes() && std::ssize(out) <= size_bytes() - offset;
    const std::byte* const bytes = is_inside ? bytes_at(*kept_, begin_ + offset, std::ssize(out)) : nullptr;
    if (bytes == nullptr) return item_.read(offset, out);  // which also returns the error of another range
    std::copy_n(bytes, out.size(), out.begin());
    return {};
  }
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return item_.stored_bytes(offset, length);
  }

 private:
  shared_section item_;
  std::int64_t begin_;
  std::shared_ptr<const runs> kept_;
};

// Reads the ends of items of a file. Returns null if they cannot be read.
std::shared_ptr<const runs> read_ends(const byte_source& file, std::span<const stored_range* const> items) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ends;  // where each begins, and where it ends
  for (const stored_range* const item : items) {
    const std::int64_t begin = item->offset, end = begin + item->length, side = std::min(item->length, end_bytes);
    ends.emplace_back(begin, begin + side);
    ends.emplace_back(end - side, end);
  }
  std::sort(ends.begin(), ends.end());
  const std::int64_t gap = std::min(file.bytes_per_request(), most_gap_bytes);
  std::vector<std::pair<std::int64_t, std::int64_t>> joined;
  for (const auto& [begin, end] : ends)
    if (joined.empty() || begin - joined.back().second > gap)
      joined.emplace_back(begin, end);
    else
      joined.back().second = std::max(joined.back().second, end);
  const auto kept = std::make_shared<runs>();
  for (const auto& [begin, end] : joined)
    kept->push_back({begin, std::vector<std::byte>(static_cast<std::size_t>(end - begin))});
  std::vector<source_range> wanted;
  for (run& one : *kept) wanted.push_back({one.begin, one.bytes});
  if (!file.read_ranges(wanted)) return nullptr;
  return kept;
}

// Returns the items of one file that are on a server and inside of the file.
std::vector<const stored_range*> readable(const byte_source& file, std::span<const stored_range> items,
                                          std::int32_t number) {
  std::vector<const stored_range*> found;
  if (file.bytes_per_request() <= 0) return found;
  const std::int64_t size = file.size_bytes();
  for (const stored_range& item : items) {
    const bool is_inside =
        item.length > 0 && item.offset >= 0 && item.offset <= size && item.length <= size - item.offset;
    if (item.file == number && item.transform == 0 && is_inside) found.push_back(&item);
  }
  return found;
}

}  // namespace

std::vector<std::shared_ptr<const byte_source>> with_ends(folder_files& files, std::span<const stored_range> items) {
  std::set<std::int32_t> distinct;
  for (const stored_range& item : items)
    if (item.file >= 0) distinct.insert(item.file);
  const std::vector<std::int32_t> numbers(distinct.begin(), distinct.end());
  std::vector<std::shared_ptr<const byte_source>> made(items.size());
  static_cast<void>(parallel_for(files_at_a_time, std::ssize(numbers), [&](std::int64_t i) -> result<void> {
    const std::int32_t number = numbers[static_cast<std::size_t>(i)];
    const auto file = files.open(number);
    if (!file) return {};  // the error is reported where the item is opened
    const std::vector<const stored_range*> of_file = readable(**file, items, number);
    if (of_file.empty()) return {};
    const std::shared_ptr<const runs> kept = read_ends(**file, of_file);
    if (!kept) return {};
    for (const stored_range* const item : of_file)
      made[static_cast<std::size_t>(item - items.data())] = std::make_shared<item_with_ends>(*file, *item, kept);
    return {};
  }));
  return made;
}

}  // namespace shardmesh::dcp
