// SPDX-License-Identifier: Apache-2.0
// Reads safetensors files and Hugging Face folders, with the objects.json that our own conversions write beside them.
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace fs = places;
namespace {

constexpr std::int64_t objects_limit_bytes = std::int64_t{4} << 30;

class safetensors_reader final : public checkpoint_reader {
 public:
  explicit safetensors_reader(const open_options& options) : pool_(options.pool()) {}

  result<void> open(const fs::path& path, checkpoint_format format) {
    path_ = path;
    contents_.format = format;
    auto opened = open_hf_folder(path, pool_);
    if (!opened) {
      error cause = std::move(opened).error();
      if (cause.sys == ENOENT) cause.code = errc::bad_format;  // the index names a missing file: a defect of the data
      return cause;
    }
    hf_folder folder = std::move(*opened);
    for (hf_file& file : folder.files) {
      const auto number = static_cast<std::int32_t>(contents_.files.size());
      contents_.files.push_back(file.name);
      for (const auto& [key, value] : file.header.metadata)
        if (is_carried_text(key)) contents_.texts.push_back({key, value, number});
      SHARDMESH_TRY(keep_checksums(file));
      sources_.push_back(std::move(file.source));
    }
    if (!folder.set_aside.empty())
      warnings_.push_back(fail(errc::duplicate_key, fmt::format("has other copies of the model, which are not read: {}",
                                                                name_list(folder.set_aside)))
                              .with_file(path.string())
                              .with_hint("open one of them by its name to read it"));
    if (folder.index && !folder.index->unread.empty())
      notes_.push_back("not kept: members of the index: " + name_list(folder.index->unread));
    if (format == checkpoint_format::hf) SHARDMESH_TRY(warn_of_torch_files());
    contents_.stem = stem_for_folders(folder.stem, format);
    contents_.tensors.reserve(folder.tensors.size());
    for (hf_tensor& tensor : folder.tensors) {
      tensor_entry& entry = contents_.tensors.emplace_back();
      entry.key = std::move(tensor.name);
      entry.where = shardmesh::path{entry.key};  // dots may be part of the name
      entry.type = tensor.type;
      entry.shape = tensor.shape;
      for (const hf_chunk& chunk : tensor.chunks)
        contents_.add_chunk({chunk.offsets, chunk.sizes},
                            {static_cast<std::int32_t>(chunk.file), 0, chunk.begin, chunk.end - chunk.begin});
    }
    if (format == checkpoint_format::hf) return read_folder_objects(path / "objects.json");
    return read_embedded_objects(folder.files.front().header, objects_beside(path));
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
    auto opened = std::make_shared<opened_chunk>();
    opened->source = sources_[static_cast<std::size_t>(place.file)];
    opened->tensor =
        contiguous_stored_tensor(tensor.type, contents_.chunk_box(tensor, chunk).sizes, place.offset, place.length);
    opened->digest = digest_of(place);
    opened->item_begin = place.offset;
    opened->item_length = place.length;
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<object_value> read_object(std::size_t index) override { return objects_[index].value; }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    auto bytes = torch_file::archive_from_json(objects_[index].value.json);
    if (bytes) return bytes;
    return std::move(bytes).error().with_key(objects_[index].key).with_values("", objects_[index].value.type);
  }

 private:
  // Warns of the same model as torch.save files from before its conversion: many repositories have both.
  result<void> warn_of_torch_files() {
    std::vector<std::string> names;
    std::error_code code;
    for (fs::directory_iterator at(path_, code), end; !code && at != end; at.increment(code)) {
      std::string name = at->path().filename().string();
      if (parse_torch_model_name(name)) names.push_back(std::move(name));
    }
    if (code) return fs::failure(code, "cannot list", path_);
    if (names.empty()) return {};
    std::sort(names.begin(), names.end());
    warnings_.push_back(
        fail(errc::duplicate_key,
             fmt::format("also has the model as files of torch.save, which are not read: {}", name_list(names)))
            .with_file(path_.string())
            .with_hint("open one of them by its name to read it"));
    return {};
  }

  // A folder keeps its stem. A single file may have any name, so only known stems are kept.
  static std::string stem_for_folders(const std::string& stem, checkpoint_format format) {
    constexpr auto known = std::to_array<std::string_view>(
        {"adapter_model", "diffusion_pytorch_model", "pytorch_lora_weights", "open_clip_model"});
    if (format == checkpoint_format::hf || std::find(known.begin(), known.end(), stem) != known.end()) return stem;
    return "model";
  }

  // Reads the checksums that our own writer put into the header. A header that does not match its own checksum is a
  // problem.
  result<void> keep_checksums(const hf_file& file) {
    if (!find_metadata(file.header, checksum_key)) {
      note_damaged_key(file);
      return {};
    }
    std::vector<std::byte> header(static_cast<std::size_t>(file.header.data_begin));
    SHARDMESH_TRY(file.source->read(0, header));
    has_checksums_ = true;
    auto digests = read_checksums(header, file.header);
    if (!digests) {
      problems_.push_back(std::move(digests).error().with_file(file.source->name()));
      return {};
    }
    if (!*digests) return {};
    const auto number = static_cast<std::int32_t>(contents_.files.size() - 1);
    for (std::size_t i = 0; i < file.header.entries.size(); ++i)
      digests_.push_back({{number, file.header.entries[i].begin, file.header.entries[i].end}, (**digests)[i]});
    return {};
  }

  // A key that differs from ours in one letter, with a value as long as our checksums, is a flipped bit.
  void note_damaged_key(const hf_file& file) {
    for (const auto& [key, value] : file.header.metadata) {
      if (key.size() != checksum_key.size() || value.size() != 32 * (file.header.entries.size() + 1)) continue;
      std::size_t equal = 0;
      for (std::size_t i = 0; i < key.size(); ++i) equal += key[i] == checksum_key[i];
      if (equal + 1 == key.size())
        problems_.push_back(fail(errc::checksum_mismatch, "the name of its checksums is damaged")
                                .with_file(file.source->name())
                                .with_values(std::string(checksum_key), key)
                                .with_hint(detail::restore_hint));
    }
  }

  std::optional<digest128> digest_of(const stored_range& place) const {
    const std::array<std::int64_t, 3> wanted{place.file, place.offset, place.offset + place.length};
    const auto found = std::lower_bound(digests_.begin(), digests_.end(), wanted,
                                        [](const auto& entry, const auto& key) { return entry.first < key; });
    if (found == digests_.end() || found->first != wanted) return std::nullopt;
    return found->second;
  }

  // The header's objects are authoritative; the copy beside the file is only compared with them.
  result<void> read_embedded_objects(const safetensors::header& header, const fs::path& copy) {
    const auto embedded = find_metadata(header, embedded_objects_key);
    if (!embedded) return {};
    auto objects = parse_objects(*embedded);
    if (!objects) {
      problems_.push_back(std::move(objects).error().with_file(path_.string()));
      return {};
    }
    keep(std::move(*objects));
    SHARDMESH_TRY(const fs::file_status there, fs::checked_status(copy));
    if (!fs::is_regular_file(there)) return {};
    SHARDMESH_TRY(const std::vector<std::byte> bytes, read_file(copy, objects_limit_bytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text == *embedded) return {};
    if (auto copied = parse_objects(text); !copied)
      problems_.push_back(std::move(copied).error().with_file(copy.string()));
    else
      warnings_.push_back(
          fail(errc::incomplete_save, "is of another save than the tensors: an overwrite was interrupted")
              .with_file(copy.string()));
    return {};
  }

  void keep(stored_objects document) {
    std::unordered_map<std::string_view, shardmesh::path*> nested;
    for (auto& [key, where] : document.tensor_paths)
      if (!where.empty()) nested.emplace(key, &where);
    for (tensor_entry& tensor : contents_.tensors)
      if (const auto found = nested.find(tensor.key); found != nested.end()) tensor.where = std::move(*found->second);
    objects_ = std::move(document.objects);
    for (const stored_object& object : objects_)
      contents_.objects.push_back({object.key, object.where.empty() ? shardmesh::path{object.key} : object.where, {}});
  }

  result<void> read_folder_objects(const fs::path& file) {
    SHARDMESH_TRY(const fs::file_status there, fs::checked_status(file));
    if (!fs::is_regular_file(there)) return {};
    SHARDMESH_TRY(const std::vector<std::byte> bytes, read_file(file, objects_limit_bytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const bool is_ours = has_checksums_ || text.find("shardmesh objects") != std::string_view::npos;
    auto objects = parse_objects(text);
    if (!objects) {
      // A foreign file of that name is ignored; a damaged one of ours is a problem.
      if (is_ours || objects.error().code == errc::checksum_mismatch)
        problems_.push_back(std::move(objects).error().with_file(file.string()));
      return {};
    }
    keep(std::move(*objects));
    return {};
  }

  file_pool pool_;
  std::vector<std::shared_ptr<const byte_source>> sources_;
  std::vector<stored_object> objects_;
  bool has_checksums_ = false;                                              // only our own writer adds them
  std::vector<std::pair<std::array<std::int64_t, 3>, digest128>> digests_;  // (file, begin, end), ascending
};

result<std::unique_ptr<checkpoint_reader>> open_as(const fs::path& path, const open_options& options,
                                                   checkpoint_format format) {
  auto reader = std::make_unique<safetensors_reader>(options);
  SHARDMESH_TRY(reader->open(path, format));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  return open_as(file, options, checkpoint_format::safetensors);
}

result<std::unique_ptr<checkpoint_reader>> open_folder(const fs::path& folder, const open_options& options) {
  return open_as(folder, options, checkpoint_format::hf);
}

result<bool> looks_like_safetensors(const fs::path& file) {
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(file));
  std::array<std::byte, 64> read{};
  if (source->size_bytes() < 9) return false;
  const auto head = std::span(read).first(static_cast<std::size_t>(std::min<std::int64_t>(source->size_bytes(), 64)));
  SHARDMESH_TRY(source->read(0, head));
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<std::uint64_t>(head[static_cast<std::size_t>(i)]);
  // White space may come first.
  const auto is_space = [](std::byte b) {
    return b == std::byte{' '} || b == std::byte{'\n'} || b == std::byte{'\t'} || b == std::byte{'\r'};
  };
  const auto first = std::find_if_not(head.begin() + 8, head.end(), is_space);
  return length <= static_cast<std::uint64_t>(max_header_bytes) && (first == head.end() || *first == std::byte{'{'});
}

}  // namespace shardmesh::safetensors
