// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.npz;

import shardmesh.storage;
import shardmesh.checkpoint_core;
import :member_crc;
import :stored_array;

namespace shardmesh::npz {
namespace {

constexpr std::int64_t usual_header_bytes = 4096;  // most headers are smaller: one read suffices

// Returns the first bytes of an array: `count` of them, or all when there are fewer.
result<std::vector<std::byte>> beginning_of(const byte_source& file, const stored_array& array, std::int64_t count) {
  const section_source record(file, array.offset, array.stored_bytes);
  const std::int64_t length = std::min(count, array.size_bytes);
  if (array.is_deflated) return decode_beginning(record, codec::deflate, length);
  return read_range(record, 0, length, max_header_bytes);
}

result<void> check_end(const array_header& header, const stored_array& array) {
  const std::int64_t end = header.data_begin + header.data_bytes;
  if (end <= array.size_bytes) return {};
  return fail(errc::bad_format,
              fmt::format("its {} of {} leave the array's bytes", name(header.type), to_string(header.shape)))
      .with_values(fmt::format("{} bytes", end), fmt::format("{}", array.size_bytes));
}

stored_tensor tensor_of(const array_header& header) {
  stored_tensor made = contiguous_stored_tensor(header.type, header.shape, header.data_begin, header.data_bytes);
  made.swap_bytes = header.is_big_endian;
  if (!header.is_fortran || header.data_bytes == 0) return made;
  std::int64_t stride = 1;  // at most the number of elements, which fits
  for (std::size_t d = 0; d < header.shape.rank(); ++d) {
    made.strides[d] = stride;
    stride *= header.shape[d];
  }
  return made;
}

// The record's CRC-32 covers the header. That of the elements follows from it, so one pass over them suffices.
void set_sum(opened_chunk& chunk, const stored_array& array) {
  if (array.crc32 == 0) return;
  const array_header& header = array.header;
  if (header.data_bytes > 0 && header.data_begin + header.data_bytes == array.size_bytes) {
    chunk.crc_begin = header.data_begin;
    chunk.crc_length = header.data_bytes;
    chunk.crc32 = remaining_crc32(array.crc32, header.crc32, header.data_bytes);
  } else {
    chunk.crc_begin = 0;
    chunk.crc_length = array.size_bytes;
    chunk.crc32 = array.crc32;
  }
}

}  // namespace

result<array_header> read_header(const byte_source& file, const stored_array& array, read_budget& budget,
                                 const std::filesystem::path& path) {
  SHARDMESH_TRY(std::vector<std::byte> bytes, beginning_of(file, array, usual_header_bytes));
  SHARDMESH_TRY(const std::int64_t length, header_bytes_of(bytes));
  if (length > static_cast<std::int64_t>(bytes.size())) {
    if (array.is_deflated)
      SHARDMESH_TRY(
          budget.decode(fmt::format("{}:{}:header", path.string(), array.offset), array.stored_bytes, length));
    SHARDMESH_TRY(bytes, beginning_of(file, array, length));
  }
  SHARDMESH_TRY(array_header header,
                parse_array_header(std::span(bytes).first(std::min(bytes.size(), static_cast<std::size_t>(length)))));
  SHARDMESH_TRY(check_end(header, array));
  return header;
}

result<std::shared_ptr<const byte_source>> bytes_of(const std::shared_ptr<const byte_source>& file,
                                                    const stored_array& array, read_budget& budget,
                                                    const std::filesystem::path& path) {
  auto record = std::make_unique<shared_section>(file, array.offset, array.stored_bytes);
  if (!array.is_deflated) return std::shared_ptr<const byte_source>(std::move(record));
  SHARDMESH_TRY(std::unique_ptr<byte_source> decoded,
                open_decoding_source(std::move(record), codec::deflate, &budget,
                                     fmt::format("{}:{}", path.string(), array.offset)));
  if (decoded->size_bytes() != array.size_bytes)
    return fail(errc::bad_format, "its deflated record has another size than the directory says")
        .with_values(fmt::format("{} bytes", array.size_bytes), fmt::format("{}", decoded->size_bytes()));
  return std::shared_ptr<const byte_source>(std::move(decoded));
}

opened_chunk chunk_of(const stored_array& array, std::shared_ptr<const byte_source> bytes) {
  opened_chunk opened;
  opened.source = std::move(bytes);
  opened.tensor = tensor_of(array.header);
  opened.reads_in_order = array.is_deflated;
  set_sum(opened, array);
  if (!array.is_deflated) {
    opened.item_begin = array.header.data_begin;
    opened.item_length = array.header.data_bytes;
  }
  return opened;
}

}  // namespace shardmesh::npz
