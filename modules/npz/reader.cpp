// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <lru_cache.hpp>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.npz;

import shardmesh.storage;
import shardmesh.torch_file;
import :member_crc;

namespace shardmesh::npz {
namespace fs = places;
namespace {

constexpr std::uint16_t method_stored = 0, method_deflate = 8;
constexpr std::int64_t usual_header_bytes = 4096;       // most headers are smaller: one read suffices
constexpr std::int64_t directory_entry_bytes = 46;      // of a ZIP record, without its name
constexpr std::int32_t no_transform = 0, inflated = 1;  // indices into the catalog's transforms

// One array, and the record that holds it.
struct stored_array {
  std::int64_t offset = 0;        // of the record's bytes in the file
  std::int64_t stored_bytes = 0;  // compressed, if deflated
  std::int64_t size_bytes = 0;    // of header, elements, and anything behind them
  bool is_deflated = false;
  std::uint32_t crc32 = 0;  // of `size_bytes` bytes; 0: unknown
  array_header header;
};

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
    if (listed) listed = check_distinct_keys(contents_, "an array and an object, or two objects, have one name");
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
    auto opened = std::make_shared<opened_chunk>();
    opened->source = *std::move(bytes);
    opened->tensor = tensor_of(array.header);
    opened->reads_in_order = array.is_deflated;
    set_sum(*opened, array);
    if (!array.is_deflated) {
      opened->item_begin = array.header.data_begin;
      opened->item_length = array.header.data_bytes;
    }
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
            .with_values(fmt::format("crc32 {:08x}", array.crc32), fmt::format("{:08x}", found));
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
      if (record.name.ends_with(array_ending))
        SHARDMESH_TRY(add_record(record));
      else if (record.name == objects_record)
        document = &record;
      else if (!record.name.ends_with('/'))
        others.push_back(escaped(record.name));
    }
    if (!others.empty())
      warnings_.push_back(fail(errc::unsupported,
                               fmt::format("has records that are not arrays, and are not read: {}", name_list(others)))
                              .with_file(path_.string()));
    return document != nullptr ? add_document(windows, *document) : result<void>{};
  }

  // Charges the memory of an entry before anything is built from the record.
  result<void> charge(const zip_record& record) {
    const auto name_bytes = static_cast<std::int64_t>(record.name.size());
    budget_.add_description(directory_entry_bytes + name_bytes);
    constexpr auto entry_bytes = static_cast<std::int64_t>(sizeof(tensor_entry) + sizeof(stored_array));
    return budget_.build(entry_bytes + static_cast<std::int64_t>(max_descr_bytes) + 4 * name_bytes);
  }

  result<void> add_record(const zip_record& record) {
    std::string key = record.name.substr(0, record.name.size() - array_ending.size());
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
    auto header = header_of(array);
    if (header) {
      if (auto fits = check_end(*header, array); !fits) header = std::move(fits).error();
    }
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

  // Returns the first bytes of an array: `count` of them, or all when there are fewer.
  result<std::vector<std::byte>> beginning_of(const stored_array& array, std::int64_t count) const {
    const section_source record(*source_, array.offset, array.stored_bytes);
    const std::int64_t length = std::min(count, array.size_bytes);
    if (array.is_deflated) return decode_beginning(record, codec::deflate, length);
    return read_range(record, 0, length, max_header_bytes);
  }

  result<array_header> header_of(const stored_array& array) {
    SHARDMESH_TRY(std::vector<std::byte> bytes, beginning_of(array, usual_header_bytes));
    SHARDMESH_TRY(const std::int64_t length, header_bytes_of(bytes));
    if (length > static_cast<std::int64_t>(bytes.size())) {
      if (array.is_deflated)
        SHARDMESH_TRY(
            budget_.decode(fmt::format("{}:{}:header", path_.string(), array.offset), array.stored_bytes, length));
      SHARDMESH_TRY(bytes, beginning_of(array, length));
    }
    return parse_array_header(std::span(bytes).first(std::min(bytes.size(), static_cast<std::size_t>(length))));
  }

  static result<void> check_end(const array_header& header, const stored_array& array) {
    const std::int64_t end = header.data_begin + header.data_bytes;
    if (end <= array.size_bytes) return {};
    return fail(errc::bad_format,
                fmt::format("its {} of {} leave the array's bytes", name(header.type), to_string(header.shape)))
        .with_values(fmt::format("{} bytes", end), fmt::format("{}", array.size_bytes));
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

  // Returns all bytes of an array, decoded.
  result<std::shared_ptr<const byte_source>> bytes_of(const stored_array& array) {
    auto record = std::make_unique<shared_section>(source_, array.offset, array.stored_bytes);
    if (!array.is_deflated) return std::shared_ptr<const byte_source>(std::move(record));
    SHARDMESH_TRY(std::unique_ptr<byte_source> decoded,
                  open_decoding_source(std::move(record), codec::deflate, &budget_,
                                       fmt::format("{}:{}", path_.string(), array.offset)));
    if (decoded->size_bytes() != array.size_bytes)
      return fail(errc::bad_format, "its deflated record has another size than the directory says")
          .with_values(fmt::format("{} bytes", array.size_bytes), fmt::format("{}", decoded->size_bytes()));
    return std::shared_ptr<const byte_source>(std::move(decoded));
  }

  static stored_tensor tensor_of(const array_header& header) {
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
  static void set_sum(opened_chunk& chunk, const stored_array& array) {
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

// The number in "weights.07.npz"; nothing for other names.
std::optional<std::int64_t> shard_number(std::string_view name) {
  constexpr std::string_view begin = "weights.", end = ".npz";
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) return std::nullopt;
  const std::string_view digits = name.substr(begin.size(), name.size() - begin.size() - end.size());
  if (digits.size() > 6 || digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  std::int64_t number = 0;
  for (const char digit : digits) number = number * 10 + (digit - '0');
  return number;
}

class mlx_reader final : public composed_reader {
 public:
  explicit mlx_reader(const fs::path& folder) : composed_reader(checkpoint_format::npz, folder) {}

  result<void> open(const open_options& options) {
    SHARDMESH_TRY(const std::vector<std::string> files, choose_files());
    for (const std::string& file : files) SHARDMESH_TRY(add_file(file, options));
    return {};
  }

 private:
  // The single file takes precedence, as in MLX.
  result<std::vector<std::string>> choose_files() {
    std::map<std::int64_t, std::string> shards;
    std::vector<std::string> all;
    bool has_whole = false;
    std::error_code code;
    for (fs::directory_iterator at(path_, code), end; !code && at != end; at.increment(code)) {
      const std::string name = at->path().filename().string();
      has_whole |= name == "weights.npz";
      const auto number = shard_number(name);
      if (!number) continue;
      if (const auto [known, is_new] = shards.emplace(*number, name); !is_new)
        return fail(errc::duplicate_key, fmt::format("has two files of one number: {} and {}", known->second, name))
            .with_file(path_.string())
            .with_hint("remove one of them");
    }
    if (code) return fail_sys(code.value(), "cannot list", path_.string());
    for (const auto& [number, name] : shards) all.push_back(name);
    if (has_whole && !all.empty())
      warnings_.push_back(
          fail(errc::duplicate_key, fmt::format("also has the model in parts, which are not read: {}", name_list(all)))
              .with_file(path_.string())
              .with_hint("open one of them by its name to read it"));
    if (has_whole) return std::vector<std::string>{"weights.npz"};
    for (std::int64_t i = 0; i < std::ssize(all); ++i)
      if (!shards.contains(i))
        return fail(errc::bad_format, fmt::format("weights.{:02}.npz is missing", i)).with_file(path_.string());
    return all;
  }

  result<void> add_file(const std::string& name, const open_options& options) {
    SHARDMESH_TRY(auto opened, npz::open(path_ / name, options));
    const std::size_t part = add_part(std::move(opened));
    const catalog& contents = this->part(part).contents();
    const auto in_file = [&](error why) { return std::move(why).with_file((path_ / name).string()); };
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      if (auto added = add_whole_tensor(contents.tensors[i].key, contents.tensors[i].where, part, i); !added)
        return in_file(std::move(added).error());
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      if (auto added = add_object(contents.objects[i].key, contents.objects[i].where, part, i); !added)
        return in_file(std::move(added).error());
    return {};
  }
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  auto reader = std::make_unique<npz_reader>(options);
  SHARDMESH_TRY(reader->open(file));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

result<std::unique_ptr<checkpoint_reader>> open_folder(const fs::path& folder, const open_options& options) {
  auto reader = std::make_unique<mlx_reader>(folder);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

bool is_weights_name(std::string_view name) {
  return name == "weights.npz" || shard_number(name);
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
  return name.ends_with(array_ending);
}

}  // namespace shardmesh::npz
