// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <lru_cache.hpp>
#include <plural.hpp>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.npz;

import shardmesh.storage;
import shardmesh.torch_file;
import :member_name;
import :stored_array;

namespace shardmesh::npz {
namespace fs = places;
namespace {

constexpr std::uint16_t method_stored = 0, method_deflate = 8;
constexpr std::int64_t directory_entry_bytes = 46;      // of a ZIP record, without its name
constexpr std::int32_t no_transform = 0, inflated = 1;  // indices into the catalog's transforms

// True for an archive, even without records.
bool is_archive(const byte_source& source) {
  constexpr std::array end{std::byte{'P'}, std::byte{'K'}, std::byte{5}, std::byte{6}};
  std::array<std::byte, 4> head{};
  if (source.size_bytes() < 4 || !source.read(0, head)) return false;
  return head == end || looks_like_zip(source);
}

class npz_reader final : public checkpoint_reader {
 public:
  explicit npz_reader(const open_options& options) : pool_(options.pool()), budget_(options.limits) {}

  result<void> open(const fs::path& file) {
    path_ = file;
    contents_.format = checkpoint_format::npz;
    contents_.files.push_back(fs::name_of(file).string());
    SHARDMESH_TRY(auto source, pool_.open(file));
    source_ = std::move(source);
    auto listed = is_archive(*source_) ? list_archive() : list_file();
    if (listed) listed = check_distinct_keys(contents_, "two of its arrays and objects have one name");
    if (listed) return {};
    error why = std::move(listed).error();
    return why.file.empty() ? std::move(why).with_file(path_.string()) : why;
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (auto known = decoded_chunk(chunk)) return known;
    if (const auto refusal = budget_.refusal()) return *refusal;
    const stored_array& array = arrays_[array_of_chunk_[static_cast<std::size_t>(chunk)]];
    auto bytes = bytes_of(array);
    if (!bytes) return budget_.keep(located(std::move(bytes).error(), tensor.key));
    auto opened = std::make_shared<opened_chunk>(chunk_of(array, *std::move(bytes)));
    if (array.is_deflated) {
      const std::scoped_lock guard(lock_);
      decoded_.insert(chunk, opened);
    }
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<object_value> read_object(std::size_t index) override { return objects_[index].value; }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    auto bytes = torch_file::archive_from_json(objects_[index].value.json);
    if (bytes) return bytes;
    return located(std::move(bytes).error(), objects_[index].key).with_values("", objects_[index].value.type);
  }

  // Compares the records of arrays that are not read with their checksums. The document of objects has been checked.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    return check_each(entries, options, [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
      if (!entry.is_tensor || options.quick) return std::pair<std::int64_t, std::int64_t>{};
      const stored_array& array = arrays_[entry.index];
      if (array.crc32 == 0) return std::pair<std::int64_t, std::int64_t>{0, array.size_bytes};
      SHARDMESH_TRY(const auto bytes, bytes_of(array));
      SHARDMESH_TRY(const std::uint32_t found, crc32_of_range(*bytes, 0, array.size_bytes));
      if (found != array.crc32)
        return fail(errc::checksum_mismatch, "the array's record differs from its CRC-32")
            .with_values(fmt::format("crc32 {:08x}", array.crc32), fmt::format("{:08x}", found))
            .with_hint(detail::restore_hint);
      return std::pair<std::int64_t, std::int64_t>{array.size_bytes, 0};
    });
  }

  // An array that is not read is compared as the bytes of its record.
  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    if (!entry.is_tensor) return std::optional<digest128>();
    const stored_array& array = arrays_[entry.index];
    auto bytes = bytes_of(array);
    if (!bytes) return located(std::move(bytes).error(), contents_.tensors[entry.index].key);
    SHARDMESH_TRY(const digest128 digest, xxh3_of_range(**bytes, 0, array.size_bytes));
    return std::optional(digest);
  }

 private:
  std::shared_ptr<const opened_chunk> decoded_chunk(std::int32_t chunk) {
    const std::scoped_lock guard(lock_);
    const auto* const known = decoded_.find(chunk);
    return known != nullptr ? *known : nullptr;
  }

  error located(error why, const std::string& key) const {
    return std::move(why).with_key(key).with_file(path_.string());
  }

  result<void> list_file() {
    SHARDMESH_TRY(add_array("tensor", {0, source_->size_bytes(), source_->size_bytes(), false, 0, {}}));
    if (problems_.empty()) return {};
    error why = std::move(problems_.front());
    why.key.clear();  // the file is not an array at all
    return why;
  }

  result<void> list_archive() {
    SHARDMESH_TRY(const windowed_source windows, windowed_source::open(*source_));
    SHARDMESH_TRY(const zip_directory directory, torch_file::open_archive(windows, budget_));
    std::vector<std::string> others;
    const zip_record* document = nullptr;
    for (const zip_record& record : directory.records()) {
      SHARDMESH_TRY(charge(record));
      if (record.name == objects_record) {
        document = &record;
        continue;
      }
      SHARDMESH_TRY(const bool is_array, holds_array(record));
      if (is_array)
        SHARDMESH_TRY(add_record(record));
      else if (!record.name.ends_with('/'))
        others.push_back(escaped(member_name(record)));
    }
    if (!others.empty())
      warnings_.push_back(fail(errc::unsupported,
                               fmt::format("has records that are not arrays, and are not read: {}", name_list(others)))
                              .with_file(path_.string()));
    return document != nullptr ? add_document(windows, *document) : result<void>{};
  }

  // numpy.load tells arrays by their first bytes, and some writers leave the ending out. A record with the ending that
  // is no array is a defect.
  result<bool> holds_array(const zip_record& record) const {
    constexpr std::int64_t magic_bytes = 6;
    if (record.name.ends_with(array_ending)) return true;
    const bool is_deflated = record.method == method_deflate;
    if (!is_deflated && record.method != method_stored) return false;
    const section_source bytes(*source_, record.offset, record.compressed_bytes);
    const std::int64_t count = std::min(magic_bytes, record.size_bytes);
    const auto first =
        is_deflated ? decode_beginning(bytes, codec::deflate, count) : read_range(bytes, 0, count, magic_bytes);
    if (first) return begins_array(*first);
    if (first.error().code == errc::io) return first.error();
    return false;
  }

  // Charges the memory of an entry before anything is built from the record.
  result<void> charge(const zip_record& record) {
    const auto name_bytes = static_cast<std::int64_t>(record.name.size());
    budget_.add_description(directory_entry_bytes + name_bytes);
    constexpr auto entry_bytes = static_cast<std::int64_t>(sizeof(tensor_entry) + sizeof(stored_array));
    return budget_.build(entry_bytes + static_cast<std::int64_t>(max_descr_bytes) + 4 * name_bytes);
  }

  result<void> add_record(const zip_record& record) {
    std::string key = member_name(record);
    if (key.ends_with(array_ending)) key.resize(key.size() - array_ending.size());
    if (!is_utf8(key)) {
      problems_.push_back(located(fail(errc::unsupported, "the name of an array is not UTF-8"), key));
      return {};
    }
    if (record.method != method_stored && record.method != method_deflate) {
      problems_.push_back(located(fail(errc::unsupported, "an array of another compression than deflate is not read")
                                      .with_values("method 0 or 8", fmt::format("method {}", record.method))
                                      .with_hint("write it again with numpy.savez"),
                                  key));
      return {};
    }
    return add_array(
        std::move(key),
        {record.offset, record.compressed_bytes, record.size_bytes, record.method == method_deflate, record.crc32, {}});
  }

  // A defect of one array leaves the others readable.
  result<void> add_array(std::string key, stored_array array) {
    auto header = read_header(*source_, array, budget_, path_);
    if (!header) {
      if (header.error().code == errc::io) return std::move(header).error();
      problems_.push_back(located(std::move(header).error(), key));
      return {};
    }
    array.header = *std::move(header);
    warn_of_rest(array, key);
    add_entry(std::move(key), array.header, array);
    arrays_.push_back(std::move(array));
    return {};
  }

  void add_entry(std::string key, const array_header& header, const stored_array& array) {
    tensor_entry& entry = contents_.tensors.emplace_back();
    entry.key = std::move(key);
    entry.where = shardmesh::path{entry.key};  // dots and slashes are part of the name
    entry.shape = header.shape;
    entry.type = header.type;
    if (header.type == dtype::undefined) {  // listed, but not read
      entry.properties.foreign_dtype = shortened(escaped(header.descr), 60);
      entry.opaque_type = fmt::format("numpy.dtype({})", entry.properties.foreign_dtype);
      entry.opaque_kind = kind_of(header);
      return;
    }
    if (array.is_deflated && contents_.transforms.size() == 1) contents_.transforms.emplace_back("deflate");
    const stored_range place = array.is_deflated
                                   ? stored_range{0, inflated, array.offset, array.stored_bytes}
                                   : stored_range{0, no_transform, array.offset + header.data_begin, header.data_bytes};
    contents_.add_chunk(box::whole(entry.shape), place);
    array_of_chunk_.push_back(contents_.tensors.size() - 1);
  }

  // numpy.load ignores such bytes; several calls of numpy.save into one file make them.
  void warn_of_rest(const stored_array& array, const std::string& key) {
    if (array.header.type == dtype::undefined) return;
    const std::int64_t rest = array.size_bytes - array.header.data_begin - array.header.data_bytes;
    if (rest > 0)
      warnings_.push_back(located(fail(errc::unsupported, fmt::format("{} behind the array's elements are not read",
                                                                      detail::counted(rest, "byte"))),
                                  key));
  }

  result<std::shared_ptr<const byte_source>> bytes_of(const stored_array& array) {
    return npz::bytes_of(source_, array, budget_, path_);
  }

  result<void> add_document(const byte_source& archive, const zip_record& record) {
    SHARDMESH_TRY(const std::vector<std::byte> bytes, read_record(archive, record, budget_.limits().description_bytes));
    budget_.add_description(static_cast<std::int64_t>(bytes.size()));
    auto document =
        safetensors::parse_objects(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    if (!document) {
      problems_.push_back(std::move(document).error().with_file(path_.string()));
      return {};
    }
    std::unordered_map<std::string_view, shardmesh::path*> nested;
    for (auto& [key, where] : document->tensor_paths)
      if (!where.empty()) nested.emplace(key, &where);
    for (tensor_entry& tensor : contents_.tensors)
      if (const auto found = nested.find(tensor.key); found != nested.end()) tensor.where = std::move(*found->second);
    objects_ = std::move(document->objects);
    for (const safetensors::stored_object& object : objects_)
      contents_.objects.push_back({object.key, object.where.empty() ? shardmesh::path{object.key} : object.where, {}});
    return {};
  }

  file_pool pool_;
  read_budget budget_;
  std::shared_ptr<const byte_source> source_;
  std::vector<stored_array> arrays_;         // one per tensor of the catalog
  std::vector<std::size_t> array_of_chunk_;  // index into `arrays_`
  std::vector<safetensors::stored_object> objects_;
  std::mutex lock_;
  // Opening a deflated array decodes it once. One that is open takes some 300 KiB.
  detail::lru_cache<std::int32_t, std::shared_ptr<const opened_chunk>> decoded_{32};
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  auto reader = std::make_unique<npz_reader>(options);
  SHARDMESH_TRY(reader->open(file));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

result<bool> looks_like_npz(const fs::path& file) {
  constexpr std::int64_t local_header_bytes = 30;
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(file));
  std::array<std::byte, local_header_bytes> head{};
  if (source->size_bytes() < local_header_bytes) return false;
  SHARDMESH_TRY(source->read(0, head));
  if (begins_array(head)) return true;
  const auto name_bytes = std::to_integer<std::int64_t>(head[26]) | std::to_integer<std::int64_t>(head[27]) << 8;
  if (!looks_like_zip(*source) || name_bytes > source->size_bytes() - local_header_bytes) return false;
  std::string name(static_cast<std::size_t>(name_bytes), '\0');
  SHARDMESH_TRY(source->read(local_header_bytes, std::as_writable_bytes(std::span(name))));
  return name.ends_with(array_ending) || name == objects_record;
}

}  // namespace shardmesh::npz
