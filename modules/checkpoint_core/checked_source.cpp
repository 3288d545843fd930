// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <entry_error.hpp>
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
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

import :checked_source;
import :recorded_sums;

namespace shardmesh {
namespace {

error altered(const opened_chunk& chunk, std::string expected, std::string found) {
  return fail(errc::checksum_mismatch, "the tensor's bytes differ from their checksum")
      .with_file(chunk.source->name())
      .with_values(std::move(expected), std::move(found))
      .with_hint(detail::restore_hint);
}

result<void> compare_crc32(const opened_chunk& chunk, std::uint32_t found) {
  if (found == chunk.crc32) return {};
  return altered(chunk, fmt::format("crc32 {:08x}", chunk.crc32), fmt::format("{:08x}", found));
}

result<void> compare_digest(const opened_chunk& chunk, std::string expected, const digest128& digest) {
  std::string found = to_hex(digest);
  if (found == expected) return {};
  return altered(chunk, std::move(expected), std::move(found));
}

// True when the stored bytes are the chunk's elements in row-major order: the executor reads them from first to last.
bool is_front_to_back(const opened_chunk& chunk) {
  const stored_tensor& t = chunk.tensor;
  const auto bytes = size_bytes(t.type, box::whole(t.sizes).volume());
  if (t.storage_offset != 0 || !bytes || *bytes != t.size_bytes || !is_contiguous(t.sizes, t.strides)) return false;
  return chunk.crc_length == 0 || (chunk.crc_begin == t.begin && chunk.crc_length == t.size_bytes);
}

}  // namespace

result<std::int64_t> check_chunk_bytes(const opened_chunk& chunk) {
  std::int64_t covered = 0;
  if (chunk.digest) {
    SHARDMESH_TRY(const digest128 found, xxh3_of_range(*chunk.source, chunk.tensor.begin, chunk.tensor.size_bytes));
    SHARDMESH_TRY(compare_digest(chunk, to_hex(*chunk.digest), found));
    covered = chunk.tensor.size_bytes;
  }
  if (chunk.crc_length > 0) {
    SHARDMESH_TRY(const std::uint32_t found, crc32_of_range(*chunk.source, chunk.crc_begin, chunk.crc_length));
    SHARDMESH_TRY(compare_crc32(chunk, found));
    covered = chunk.crc_length;
  }
  return covered;
}

storage_sums::storage_sums(const catalog& contents) {
  // Remembers only the places that several chunks share. There are few of them, unless the checkpoint is defective.
  std::vector<key> places;
  places.reserve(contents.chunk_places.size());
  for (const stored_range& place : contents.chunk_places)
    places.emplace_back(place.file, place.transform, place.offset, place.length);
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i] == places[i - 1]) shared_.insert(places[i]);
}

result<std::int64_t> storage_sums::check(const opened_chunk& chunk, const stored_range& place) {
  const key stored{place.file, place.transform, place.offset, place.length};
  if (!shared_.contains(stored)) return check_chunk_bytes(chunk);
  memo& known = [&]() -> memo& {
    const std::scoped_lock guard(lock_);
    return known_[{stored, chunk.crc_begin, chunk.crc_length, chunk.crc32}];
  }();
  SHARDMESH_TRY(const auto held, known.lock.acquire());
  if (known.outcome) return *known.outcome;
  auto checked = check_chunk_bytes(chunk);
  if (checked || !detail::is_limit_error(checked.error())) known.outcome.emplace(checked);
  return checked;
}

checked_source::checked_source(std::shared_ptr<const opened_chunk> chunk, const std::string* recorded)
    : chunk_(std::move(chunk)), recorded_(recorded) {
  next_ = chunk_->tensor.begin;
  end_ = next_ + chunk_->tensor.size_bytes;
}

bool checked_source::is_done() const {
  const std::scoped_lock guard(lock_);
  return done_;
}

result<void> checked_source::read(std::int64_t offset, std::span<std::byte> out) const {
  SHARDMESH_TRY(chunk_->source->read(offset, out));
  return sum(offset, out);
}

result<void> checked_source::read_ranges(std::span<const source_range> ranges) const {
  SHARDMESH_TRY(chunk_->source->read_ranges(ranges));
  for (const source_range& one : ranges) SHARDMESH_TRY(sum(one.offset, one.out));
  return {};
}

result<void> checked_source::sum(std::int64_t offset, std::span<const std::byte> bytes) const {
  const std::scoped_lock guard(lock_);
  if (done_ || bytes.empty()) return {};
  if (next_ != offset || static_cast<std::int64_t>(bytes.size()) > end_ - offset) return check_disjoint();
  return sum_next(bytes);
}

// The caller holds the lock.
result<void> checked_source::sum_next(std::span<const std::byte> bytes) const {
  if (recorded_ && next_ == chunk_->tensor.begin)
    SHARDMESH_TRY(for_each_piece(*chunk_->source, chunk_->item_begin, next_ - chunk_->item_begin,
                                 [&](auto piece) { item_.update(piece); }));
  next_ += static_cast<std::int64_t>(bytes.size());
  if (chunk_->digest) elements_.update(bytes);
  if (recorded_) item_.update(bytes);
  if (chunk_->crc_length > 0) crc32_ = crc32_of(bytes, crc32_);
  return next_ < end_ ? result<void>{} : compare();
}

result<void> checked_source::finish() const {
  const std::scoped_lock guard(lock_);
  if (done_) return {};
  if (next_ == end_) return check_disjoint();  // reached after a mismatch, or if there are no elements
  result<void> outcome;
  SHARDMESH_TRY(for_each_piece(*chunk_->source, next_, end_ - next_, [&](auto piece) {
    if (outcome) outcome = sum_next(piece);
  }));
  return outcome;
}

result<void> checked_source::compare() const {
  if (chunk_->digest) SHARDMESH_TRY(compare_digest(*chunk_, to_hex(*chunk_->digest), elements_.digest()));
  if (chunk_->crc_length > 0) SHARDMESH_TRY(compare_crc32(*chunk_, crc32_));
  if (recorded_) {
    SHARDMESH_TRY(for_each_piece(*chunk_->source, end_, chunk_->item_begin + chunk_->item_length - end_,
                                 [&](auto piece) { item_.update(piece); }));
    SHARDMESH_TRY(compare_digest(*chunk_, *recorded_, item_.digest()));
  }
  done_ = true;
  return {};
}

result<void> checked_source::check_disjoint() const {
  SHARDMESH_TRY(check_chunk_bytes(*chunk_));
  if (recorded_) {
    SHARDMESH_TRY(const digest128 found, xxh3_of_range(*chunk_->source, chunk_->item_begin, chunk_->item_length));
    SHARDMESH_TRY(compare_digest(*chunk_, *recorded_, found));
  }
  done_ = true;
  return {};
}

chunk_checks::chunk_checks(const checkpoint_reader& reader, std::shared_ptr<const recorded_sums> record)
    : reader_(reader),
      record_(std::move(record)),
      sums_(reader.contents()),
      done_(reader.contents().chunk_places.size()),
      range_done_(record_ ? record_->ranges().size() : 0) {}

result<void> chunk_checks::read(std::int32_t chunk, const std::shared_ptr<const opened_chunk>& opened, const box& part,
                                const tensor_view& to, const read_options& options) {
  SHARDMESH_TRY(const auto source, source_of(chunk, opened));
  if (!source) return read_box(*opened->source, opened->tensor, part, to, options);
  auto outcome = read_box(*source, opened->tensor, part, to, options);
  if (outcome && source->is_done()) finish(chunk);
  return outcome;
}

// Returns null when nothing is left to check.
result<std::shared_ptr<const checked_source>> chunk_checks::source_of(
    std::int32_t chunk, const std::shared_ptr<const opened_chunk>& opened) {
  const std::shared_ptr<const checked_source> none;
  const auto at = static_cast<std::size_t>(chunk);
  const stored_range& place = reader_.contents().chunk_places[at];
  std::optional<std::size_t> range;
  {
    const std::scoped_lock guard(lock_);
    if (done_[at]) return none;
    if (const auto found = being_read_.find(chunk); found != being_read_.end()) return found->second;
    if (record_) range = record_->of_item(place);
    if (is_front_to_back(*opened) && (!range || opened->item_length > 0)) {
      if (!range && !has_checksum(*opened)) {
        done_[at] = true;
        return none;
      }
      const std::string* digits = range ? &record_->ranges()[*range].digits : nullptr;
      auto made = std::make_shared<const checked_source>(opened, digits);
      being_read_.emplace(chunk, made);
      return std::shared_ptr<const checked_source>(std::move(made));
    }
  }
  SHARDMESH_TRY(sums_.check(*opened, place));
  if (range && !is_checked(*range)) SHARDMESH_TRY(record_->check(*range));
  finish(chunk, range);
  return none;
}

result<void> chunk_checks::finish() {
  std::vector<std::pair<std::int32_t, std::shared_ptr<const checked_source>>> begun;
  {
    const std::scoped_lock guard(lock_);
    begun.assign(being_read_.begin(), being_read_.end());
  }
  for (const auto& [chunk, source] : begun) {
    if (auto done = source->finish(); !done) {
      const tensor_entry& tensor = reader_.contents().tensors[reader_.tensor_of_chunk(chunk)];
      return detail::at_entry(std::move(done).error(), tensor.key)
          .with_box(reader_.contents().chunk_box(tensor, chunk));
    }
    finish(chunk);
  }
  return {};
}

bool chunk_checks::is_checked(std::size_t range) {
  const std::scoped_lock guard(lock_);
  return range_done_[range];
}

void chunk_checks::finish(std::int32_t chunk, std::optional<std::size_t> range) {
  const std::scoped_lock guard(lock_);
  if (range) range_done_[*range] = true;
  done_[static_cast<std::size_t>(chunk)] = true;
  being_read_.erase(chunk);
}

}  // namespace shardmesh
