// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <entry_error.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {

void checkpoint_reader::describe_as(const checkpoint_reader& shown) {
  const catalog& from = shown.contents();
  contents_.format = from.format;
  contents_.version = from.version;
  contents_.files = from.files;
  contents_.transforms = from.transforms;
  contents_.objects = from.objects;
  contents_.texts = from.texts;
  contents_.stem = from.stem;
  path_ = shown.path();
  warnings_ = shown.warnings();
  problems_ = shown.problems();
  notes_ = shown.notes();
  unread_tensors_ = shown.unread_tensors();
}

result<std::vector<std::byte>> checkpoint_reader::chunk_archive(const tensor_entry& tensor, std::int32_t) {
  return fail(errc::unsupported, "the format has no archive of a chunk").with_key(tensor.key);
}

result<std::shared_ptr<const byte_source>> checkpoint_reader::item_bytes(const stored_range&) {
  return fail(errc::unsupported, "the format has no items").with_file(path_.string());
}

check_outcome checkpoint_reader::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  return check_each(entries, options, [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
    if (!entry.is_tensor && !options.quick) SHARDMESH_TRY(read_object(entry.index));
    return std::pair<std::int64_t, std::int64_t>{};
  });
}

std::optional<shown_entry> checkpoint_reader::shown(const whole_entry&) const {
  return std::nullopt;
}

result<std::optional<digest128>> checkpoint_reader::content_of(const whole_entry& entry) {
  const auto there = shown(entry);
  return there ? there->reader->content_of(there->entry) : result<std::optional<digest128>>(std::nullopt);
}

check_outcome checkpoint_reader::check_each(
    std::span<const whole_entry> entries, const check_options& options,
    function_ref<result<std::pair<std::int64_t, std::int64_t>>(const whole_entry& entry)> check) const {
  first_problems problems(options.max_problems);
  std::atomic<std::int64_t> checked = 0, without = 0;
  const auto ended =
      parallel_for(options.threads, static_cast<std::int64_t>(entries.size()), [&](std::int64_t i) -> result<void> {
        const whole_entry& entry = entries[static_cast<std::size_t>(i)];
        auto done = check(entry);
        if (done) {
          checked += done->first;
          if (done->second > 0) ++without;
          return {};
        }
        error cause = std::move(done).error();
        if (cause.key.empty())
          cause = detail::at_entry(std::move(cause), entry.is_tensor ? contents_.tensors[entry.index].key
                                                                     : contents_.objects[entry.index].key);
        if (cause.file.empty()) cause.file = printable_url(path_.string());
        problems.add(i, std::move(cause));
        return {};
      });
  if (!ended) problems.add(static_cast<std::int64_t>(entries.size()), ended.error());  // the rest is unchecked
  return {problems.take(), problems.more(), checked, without};
}

std::size_t checkpoint_reader::tensor_of_chunk(std::int32_t chunk) const {
  std::call_once(indexed_, [this] {
    for (std::size_t i = 0; i < contents_.tensors.size(); ++i)
      if (contents_.tensors[i].chunk_count > 0) by_first_chunk_.emplace_back(contents_.tensors[i].first_chunk, i);
    std::sort(by_first_chunk_.begin(), by_first_chunk_.end());
  });
  const auto after = std::upper_bound(by_first_chunk_.begin(), by_first_chunk_.end(), chunk,
                                      [](std::int32_t wanted, const auto& entry) { return wanted < entry.first; });
  return std::prev(after)->second;
}

chunk_source::chunk_source(checkpoint_reader& reader, read_options options) : reader_(&reader), options_(options) {}
chunk_source::chunk_source(chunk_source&&) noexcept = default;
chunk_source::~chunk_source() = default;

chunk_source chunk_source::checking(checkpoint_reader& reader, std::shared_ptr<const recorded_sums> record,
                                    read_options options) {
  chunk_source made(reader, options);
  made.checks_ = std::make_unique<chunk_checks>(reader, std::move(record));
  return made;
}

const tensor_entry& chunk_source::tensor_of(std::int32_t chunk) const {
  return reader_->contents().tensors[reader_->tensor_of_chunk(chunk)];
}

result<void> chunk_source::read(item_id item, const box& part, const tensor_view& to) {
  const tensor_entry& tensor = tensor_of(item.slot);
  if (auto held = check_host_memory(to); !held)
    return detail::at_entry(std::move(held).error(), tensor.key).with_box(part);
  SHARDMESH_TRY(const auto chunk, reader_->open_chunk(tensor, item.slot));
  auto done = checks_ ? checks_->read(item.slot, chunk, part, to, options_)
                      : read_box(*chunk->source, chunk->tensor, part, to, options_, &reader_->maps());
  if (done || !done.error().key.empty()) return done;
  error cause = std::move(done).error();
  if (cause.boxes.empty()) cause.boxes.push_back(reader_->contents().chunk_box(tensor, item.slot));
  return detail::at_entry(std::move(cause), tensor.key);
}

result<void> chunk_source::finish() {
  return checks_ ? checks_->finish() : result<void>{};
}

bool chunk_source::reads_in_order(item_id item) {
  const auto chunk = reader_->open_chunk(tensor_of(item.slot), item.slot);
  return chunk && (*chunk)->reads_in_order;
}

bool chunk_source::prefers_large_reads(item_id item) {
  const auto chunk = reader_->open_chunk(tensor_of(item.slot), item.slot);
  if (!chunk) return false;  // the read reports the error
  // Each read of a compressed view, such as an array in Fortran order, decodes most of the stream.
  const stored_tensor& tensor = (*chunk)->tensor;
  if ((*chunk)->reads_in_order && !is_contiguous(tensor.sizes, tensor.strides)) return true;
  const byte_source& source = *(*chunk)->source;
  const auto* const computed = dynamic_cast<const computed_source*>(&source);
  // A large range of an object is requested in several parts at a time.
  return computed != nullptr ? computed->prefers_large_reads() : source.bytes_per_request() > 0;
}

}  // namespace shardmesh
