// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <libdeflate.h>
#include <try.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;

result<void> for_each_piece(const byte_source& source, std::int64_t begin, std::int64_t length,
                            function_ref<void(std::span<const std::byte>)> visit) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::int64_t>(length, buffer_bytes)));
  for (std::int64_t at = 0; at < length;) {
    const auto piece = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::int64_t>(length - at, static_cast<std::int64_t>(buffer.size()))));
    SHARDMESH_CHECK(source.read(begin + at, piece));
    visit(piece);
    at += static_cast<std::int64_t>(piece.size());
  }
  return {};
}

error altered(const opened_chunk& chunk, std::string expected, std::string found) {
  return fail(errc::checksum_mismatch, "the tensor's bytes are not what was written")
      .with_file(chunk.source->name())
      .with_values(std::move(expected), std::move(found));
}

// Compares the checksum that the file has of this chunk; the bytes that were covered, 0 when there is none.
result<std::int64_t> check_bytes(const opened_chunk& chunk) {
  if (chunk.digest) {
    xxh3_stream sum;
    SHARDMESH_CHECK(for_each_piece(*chunk.source, chunk.tensor.begin, chunk.tensor.size_bytes,
                                   [&](auto piece) { sum.update(piece); }));
    if (sum.digest() != *chunk.digest) return altered(chunk, to_hex(*chunk.digest), to_hex(sum.digest()));
    return chunk.tensor.size_bytes;
  }
  if (chunk.crc_length == 0) return std::int64_t{0};
  std::uint32_t crc = 0;
  SHARDMESH_CHECK(for_each_piece(*chunk.source, chunk.crc_begin, chunk.crc_length,
                                 [&](auto piece) { crc = libdeflate_crc32(crc, piece.data(), piece.size()); }));
  if (crc != chunk.crc32) return altered(chunk, fmt::format("crc32 {:08x}", chunk.crc32), fmt::format("{:08x}", crc));
  return chunk.crc_length;
}

class verification {
 public:
  verification(checkpoint_reader& reader, const verify_options& options) : reader_(reader), options_(options) {}

  verify_report run() {
    report_.warnings = reader_.warnings();
    reader_.identify_opaque_tensors();
    for (const error& problem : reader_.problems()) add(problem);
    const catalog& contents = reader_.contents();
    for (const tensor_entry& tensor : contents.tensors) check_boxes(tensor);
    check_shared_bytes(contents);
    // Chunks in parallel, their problems in the catalog's order.
    std::vector<std::pair<const tensor_entry*, std::int32_t>> chunks;
    for (const tensor_entry& tensor : contents.tensors)
      for (std::int32_t i = 0; i < tensor.chunk_count; ++i) chunks.emplace_back(&tensor, tensor.first_chunk + i);
    std::vector<std::optional<error>> found(chunks.size() + contents.objects.size());
    static_cast<void>(
        parallel_for(options_.threads, static_cast<std::int64_t>(found.size()), [&](std::int64_t i) -> result<void> {
          const auto at = static_cast<std::size_t>(i);
          auto checked =
              at < chunks.size() ? check_chunk(*chunks[at].first, chunks[at].second) : check_object(at - chunks.size());
          if (!checked) found[at] = std::move(checked).take_error();
          return {};
        }));
    for (auto& problem : found)
      if (problem) add(std::move(*problem));
    report_.chunks = static_cast<std::int64_t>(chunks.size());
    report_.objects = static_cast<std::int64_t>(contents.objects.size());
    report_.bytes = contents.tensor_bytes();
    report_.checked_bytes = checked_bytes_;
    if (!options_.quick) check_record();
    report_.globals = find_globals(reader_.path(), &reader_, {.threads = options_.threads, .limits = options_.limits});
    for (const error& problem : report_.globals.problems) add(problem);
    for (error& warning : warnings_of(report_.globals, reader_.path())) report_.warnings.push_back(std::move(warning));
    return std::move(report_);
  }

 private:
  void add(error problem) {
    if (problem.file.empty()) problem.file = reader_.path().string();
    // The same defect may be met twice (as a chunk without a place and as a gap): one line each.
    if (std::find(report_.problems.begin(), report_.problems.end(), problem) != report_.problems.end()) return;
    if (report_.problems.size() < options_.max_problems)
      report_.problems.push_back(std::move(problem));
    else
      ++report_.unnamed_problems;
  }

  void check_boxes(const tensor_entry& tensor) {
    if (!tensor.opaque_type.empty() && tensor.chunk_count == 0) return;  // inside a .pt file, in a form of its own
    auto held = reader_.contents().distribution_of(tensor);
    if (!held) return add(std::move(held).take_error());
    const cover_report cover = check_cover(*held);
    for (const cover_problem& problem : cover.problems) add(to_error(problem).with_key(tensor.key));
    const auto named = static_cast<std::int64_t>(cover.problems.size());
    if (cover.total > named) report_.unnamed_problems += cover.total - named;
    check_duplicates(tensor);
  }

  // Equal boxes are replicas to the planner, but a checkpoint stores each once.
  void check_duplicates(const tensor_entry& tensor) {
    std::vector<box> boxes;
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
      box b = reader_.contents().chunk_box(tensor, tensor.first_chunk + i);
      if (!b.is_empty()) boxes.push_back(b);
    }
    std::sort(boxes.begin(), boxes.end());
    for (std::size_t i = 1; i < boxes.size(); ++i)
      if (boxes[i] == boxes[i - 1])
        add(fail(errc::overlap, "a chunk is stored twice").with_key(tensor.key).with_box(boxes[i]));
  }

  void check_shared_bytes(const catalog& contents) {
    if (contents.format != checkpoint_format::dcp) return;  // a .pt file's tensors may share storage
    std::vector<std::tuple<std::int32_t, std::int64_t, std::int64_t, const std::string*>> ranges;
    const auto note = [&](const stored_range& place, const std::string& key) {
      if (place.file >= 0 && place.length > 0) ranges.emplace_back(place.file, place.offset, place.length, &key);
    };
    for (const tensor_entry& tensor : contents.tensors)
      for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
        note(contents.chunk_places[static_cast<std::size_t>(tensor.first_chunk + i)], tensor.key);
    for (const object_entry& object : contents.objects) note(object.place, object.key);
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
      return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a)) <
             std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b));
    });
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      const auto& [file, offset, length, key] = ranges[i - 1];
      const auto& [next_file, next_offset, next_length, next_key] = ranges[i];
      if (file == next_file && next_offset - offset < length)
        add(fail(errc::overlap, fmt::format("shares bytes {} to {} with the item of {}", next_offset,
                                            std::min(offset + length, next_offset + next_length), escaped(*key)))
                .with_file((reader_.path() / contents.files[static_cast<std::size_t>(file)]).string())
                .with_key(*next_key));
    }
  }

  result<void> check_chunk(const tensor_entry& tensor, std::int32_t chunk) {
    if (!tensor.opaque_type.empty()) return {};
    SHARDMESH_TRY(const auto opened, reader_.open_chunk(tensor, chunk));
    if (options_.quick) return {};
    auto checked = check_bytes(*opened);
    if (!checked)
      return std::move(checked).take_error().with_key(tensor.key).with_box(reader_.contents().chunk_box(tensor, chunk));
    checked_bytes_ += *checked;
    return {};
  }

  result<void> check_object(std::size_t index) {
    auto value = reader_.read_object(index);
    if (value) return {};
    error problem = std::move(value).take_error();
    if (problem.key.empty()) problem.key = reader_.contents().objects[index].key;
    return problem;
  }

  // Files that shardmesh wrote have a record of checksums of every byte.
  void check_record() {
    std::error_code code;
    const auto folder = reader_.path();
    if (!std::filesystem::is_directory(folder, code)) return;
    const auto record = folder / checksum_file_name;
    if (!std::filesystem::exists(record, code)) return;
    auto bytes = read_file(record, std::int64_t{1} << 32);
    if (!bytes) return add(std::move(bytes).take_error());
    auto ranges = parse_checksums({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
    if (!ranges) return add(std::move(ranges).take_error().with_file(record.string()));
    file_pool files;
    for (error& problem : check_checksums(folder, *ranges, files, options_.threads)) add(std::move(problem));
    for (const checksum_range& range : *ranges) report_.checked_bytes += range.length;
  }

  checkpoint_reader& reader_;
  const verify_options& options_;
  verify_report report_;
  std::atomic<std::int64_t> checked_bytes_{0};
};

}  // namespace

verify_report verify(checkpoint_reader& reader, const verify_options& options) {
  return verification(reader, options).run();
}

}  // namespace shardmesh
