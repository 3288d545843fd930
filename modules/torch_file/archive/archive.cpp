// SPDX-License-Identifier: Apache-2.0
// Reproduces the bytes of torch.save field by field, as miniz and PyTorch's writer do, ZIP64 included.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "put_bytes.hpp"
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

using put_bytes::append;
using put_bytes::buffer;
using put_bytes::put;

constexpr std::int64_t saturated = 0xffffffff, alignment = 64, local_header_bytes = 30;

// Bytes to reserve for a tensor's archive without its data and pickle, rounded up.
constexpr std::size_t head_bytes = 768, tail_bytes = 1024, tensor_records = 7, name_room = 24;

// The record names of a tensor's archive. Excludes .data/serialization_id, whose content includes their hash.
constexpr std::array<std::string_view, 6> tensor_names{"data.pkl",  ".format_version", ".storage_alignment",
                                                       "byteorder", "data/0",          "version"};

/// Returns the ZIP64 extra field: only the numbers that do not fit into 32 bits, in this order. In local headers the
/// compressed size is still 0.
buffer wide_field(std::int64_t size_bytes, std::int64_t compressed_bytes, std::int64_t header_offset) {
  buffer numbers;
  if (size_bytes >= saturated) put(numbers, size_bytes, 8), put(numbers, compressed_bytes, 8);
  if (header_offset >= saturated) put(numbers, header_offset, 8);
  if (numbers.empty()) return {};
  buffer field;
  put(field, std::int64_t{1}, 2);
  put(field, static_cast<std::int64_t>(numbers.size()), 2);
  append(field, numbers);
  return field;
}

/// Bit 11: names are UTF-8. Bit 3: sizes follow the data, which empty records omit.
std::int64_t flags_of(std::int64_t size_bytes) {
  return size_bytes > 0 ? 0x0808 : 0x0800;
}

/// c10::hash_combine
std::uint64_t combined(std::uint64_t seed, std::uint64_t value) {
  return seed ^ (value + 0x9e3779b9 + (seed << 6) + (seed >> 2));
}

/// The names' part of PyTorch's fingerprint of an archive: the combined hashes of the names, in the order of a hash
/// set. It equals PyTorch's if the standard library's hash does (libstdc++). Readers never check it.
std::uint64_t hash_of(std::span<const std::string_view> names) {
  std::unordered_set<std::string> written;
  for (const std::string_view name : names) written.emplace(name);
  std::uint64_t hash = 0;
  for (const std::string& name : written) hash = combined(hash, std::hash<std::string>{}(name));
  return hash;
}

}  // namespace

archive::archive(std::string prefix) : prefix_(std::move(prefix)) {
  entries_.reserve(tensor_records);
  names_.reserve(tensor_records * (prefix_.size() + name_room));
}

void archive::begin_record(buffer& out, std::string_view name, std::int64_t size_bytes) {
  const std::size_t begin = names_.size();
  names_.append(prefix_).append("/").append(name);
  const buffer wide = wide_field(size_bytes, 0, at_);
  const auto name_bytes = static_cast<std::int64_t>(names_.size() - begin),
             wide_bytes = static_cast<std::int64_t>(wide.size());
  const std::int64_t data_at = at_ + local_header_bytes + name_bytes + wide_bytes + 4;
  const std::int64_t padding = (alignment - data_at % alignment) % alignment;

  put(out, std::int64_t{0x04034b50}, 4);
  put(out, std::int64_t{0}, 2);  // version needed
  put(out, flags_of(size_bytes), 2);
  put(out, std::int64_t{0}, 2);  // stored
  put(out, std::int64_t{0}, 4);  // no time
  put(out, std::int64_t{0}, 4);  // CRC-32; like the sizes, it is in the descriptor
  put(out, std::int64_t{0}, 8);
  put(out, name_bytes, 2);
  put(out, wide_bytes + 4 + padding, 2);
  put(out, std::string_view(names_).substr(begin));
  append(out, wide);
  put(out, "FB");
  put(out, padding, 2);
  out.resize(out.size() + static_cast<std::size_t>(padding), std::byte{'Z'});

  entries_.push_back({names_.size(), size_bytes, at_, 0});
  at_ = data_at + padding + size_bytes;
}

void archive::end_record(buffer& out, std::uint32_t crc32) {
  entry& last = entries_.back();
  if (last.size_bytes == 0) return;
  last.crc32 = crc32;
  const int width = last.size_bytes >= saturated || last.header_offset >= saturated ? 8 : 4;
  put(out, std::int64_t{0x08074b50}, 4);
  put(out, std::int64_t{crc32}, 4);
  put(out, last.size_bytes, width);
  put(out, last.size_bytes, width);
  combined_crc_ = combined(combined_crc_, crc32);
  at_ += 8 + 2 * width;
}

void archive::record(buffer& out, std::string_view name, std::span<const std::byte> data) {
  begin_record(out, name, static_cast<std::int64_t>(data.size()));
  out.insert(out.end(), data.begin(), data.end());
  end_record(out, crc32_of(data));
}

void archive::head(buffer& out, std::span<const std::byte> data_pkl) {
  record(out, "data.pkl", data_pkl);
  record(out, ".format_version", std::as_bytes(std::span("1", 1)));
  record(out, ".storage_alignment", std::as_bytes(std::span("64", 2)));
  record(out, "byteorder", std::as_bytes(std::span("little", 6)));
}

std::uint64_t archive::hash_of_names() const {
  const auto name_of = [this](std::size_t i) { return full_name(i).substr(prefix_.size() + 1); };
  bool is_tensor = entries_.size() + 1 == tensor_names.size();
  for (std::size_t i = 0; i < entries_.size() && is_tensor; ++i) is_tensor = name_of(i) == tensor_names[i];
  if (is_tensor) return hash_of_tensor_names();
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < entries_.size(); ++i) names.push_back(name_of(i));
  names.emplace_back("version");
  return hash_of(names);
}

std::uint64_t archive::hash_of_tensor_names() {
  static const std::uint64_t hash = hash_of(tensor_names);
  return hash;
}

void archive::tail(buffer& out, std::uint64_t names_hash) {
  record(out, "version", std::as_bytes(std::span("3\n", 2)));
  // PyTorch's fingerprint: the hash of the names, then that of the checksums.
  std::array<char, 40> id;
  fmt::format_to(id.begin(), "{:020}{:020}", names_hash, combined_crc_);
  record(out, ".data/serialization_id", std::as_bytes(std::span(id)));

  const std::int64_t directory_at = at_;
  const std::size_t directory_begin = out.size();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const entry& written = entries_[i];
    const std::string_view full = full_name(i);
    const buffer wide = wide_field(written.size_bytes, written.size_bytes, written.header_offset);
    put(out, std::int64_t{0x02014b50}, 4);
    put(out, std::int64_t{0}, 4);  // versions made by and needed
    put(out, flags_of(written.size_bytes), 2);
    put(out, std::int64_t{0}, 2);
    put(out, std::int64_t{0}, 4);
    put(out, std::int64_t{written.crc32}, 4);
    put(out, std::min(written.size_bytes, saturated), 4);
    put(out, std::min(written.size_bytes, saturated), 4);
    put(out, static_cast<std::int64_t>(full.size()), 2);
    put(out, static_cast<std::int64_t>(wide.size()), 2);
    put(out, std::int64_t{0}, 2);  // comment
    put(out, std::int64_t{0}, 8);  // disk and attributes
    put(out, std::min(written.header_offset, saturated), 4);
    put(out, full);
    append(out, wide);
  }
  const auto count = static_cast<std::int64_t>(entries_.size()),
             bytes = static_cast<std::int64_t>(out.size() - directory_begin);

  put(out, std::int64_t{0x06064b50}, 4);  // ZIP64 end record
  put(out, std::int64_t{44}, 8);
  put(out, std::int64_t{0x031e}, 2);
  put(out, std::int64_t{0x002d}, 2);
  put(out, std::int64_t{0}, 8);
  put(out, count, 8);
  put(out, count, 8);
  put(out, bytes, 8);
  put(out, directory_at, 8);
  put(out, std::int64_t{0x07064b50}, 4);  // its locator
  put(out, std::int64_t{0}, 4);
  put(out, directory_at + bytes, 8);
  put(out, std::int64_t{1}, 4);
  put(out, std::int64_t{0x06054b50}, 4);  // end record
  put(out, std::int64_t{0}, 4);
  put(out, std::min<std::int64_t>(count, 0xffff), 2);
  put(out, std::min<std::int64_t>(count, 0xffff), 2);
  put(out, std::min(bytes, saturated), 4);
  put(out, std::min(directory_at, saturated), 4);
  put(out, std::int64_t{0}, 2);
  at_ += bytes + 98;
}

std::vector<std::byte> archive::begin_record(std::string_view name, std::int64_t size_bytes) {
  buffer out;
  out.reserve(256);
  begin_record(out, name, size_bytes);
  return out;
}

std::vector<std::byte> archive::end_record(std::uint32_t crc32) {
  buffer out;
  out.reserve(tail_bytes);  // room for the tail, which callers append for a small archive
  end_record(out, crc32);
  return out;
}

std::vector<std::byte> archive::record(std::string_view name, std::span<const std::byte> data) {
  buffer out;
  record(out, name, data);
  return out;
}

std::vector<std::byte> archive::head(std::span<const std::byte> data_pkl) {
  buffer out;
  out.reserve(data_pkl.size() + head_bytes);
  head(out, data_pkl);
  return out;
}

std::vector<std::byte> archive::tail() {
  buffer out;
  out.reserve(tail_bytes);
  tail(out, hash_of_names());
  return out;
}

result<tensor_archive> tensor_archive::make(dtype type, const extents& sizes) {
  SHARDMESH_TRY(const auto data_pkl, tensor_pickle(type, sizes));
  tensor_archive made;
  made.data_bytes_ = *shardmesh::size_bytes(type, *checked_volume(sizes));
  made.prefix_.reserve(data_pkl.size() + head_bytes);
  made.archive_.head(made.prefix_, data_pkl);
  made.archive_.begin_record(made.prefix_, "data/0", made.data_bytes_);
  made.suffix_bytes_ = static_cast<std::int64_t>(made.suffix(0).size());
  return made;
}

std::vector<std::byte> tensor_archive::suffix(std::uint32_t crc32) const {
  torch_file::archive archive = archive_;
  archive.entries_.reserve(tensor_records);  // a copied vector has no spare capacity
  archive.names_.reserve(tensor_records * (archive.prefix_.size() + name_room));
  buffer out;
  out.reserve(tail_bytes);
  archive.end_record(out, crc32);
  archive.tail(out, torch_file::archive::hash_of_tensor_names());
  return out;
}

std::optional<error> problem_of_name(std::string_view key) {
  if (is_python_text(key)) return std::nullopt;
  return fail(errc::unsupported, "the name is not UTF-8, and Python could not read the file")
      .with_key(key)
      .with_hint("rename the entry, or leave it out");
}

std::vector<std::byte> object_archive(std::span<const std::byte> data_pkl) {
  torch_file::archive archive;
  buffer out = archive.head(data_pkl);
  append(out, archive.tail());
  return out;
}

}  // namespace shardmesh::torch_file
