// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :checkpoint_folders;

namespace shardmesh {
namespace fs = std::filesystem;

result<std::vector<std::byte>> checkpoint_reader::chunk_archive(const tensor_entry& tensor, std::int32_t) {
  return fail(errc::unsupported, "the format has no archive of a chunk").with_key(tensor.key);
}

result<opened_object> checkpoint_reader::open_object(std::size_t index) {
  return fail(errc::unsupported, "the format's objects have no archives").with_key(contents_.objects[index].key);
}

result<std::shared_ptr<const byte_source>> checkpoint_reader::item_bytes(const stored_range&) {
  return fail(errc::unsupported, "the format has no items").with_file(path_.string());
}

const dcp_extras& checkpoint_reader::extras() const {
  static const dcp_extras none = [] {
    dcp_extras made;
    made.version = "1.0.0";
    return made;
  }();
  return none;
}

chunk_source::~chunk_source() = default;

chunk_source::chunk_source(checkpoint_reader& reader, read_options options, bool check_sums)
    : reader_(reader), options_(options), check_sums_(check_sums) {
  const auto& tensors = reader.contents().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].chunk_count > 0) tensor_indices_.push_back(i);
  std::sort(tensor_indices_.begin(), tensor_indices_.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].first_chunk < tensors[b].first_chunk; });
  for (const std::size_t i : tensor_indices_) first_chunks_.push_back(tensors[i].first_chunk);
}

const tensor_entry& chunk_source::tensor_of(std::int32_t chunk) const {
  const auto after = std::upper_bound(first_chunks_.begin(), first_chunks_.end(), chunk);
  return reader_.contents().tensors[tensor_indices_[static_cast<std::size_t>(after - first_chunks_.begin()) - 1]];
}

result<void> chunk_source::read(item_id item, const box& part, const tensor_view& to) {
  const tensor_entry& tensor = tensor_of(item.slot);
  if (auto held = check_host_memory(to); !held) return std::move(held).take_error().with_key(tensor.key).with_box(part);
  SHARDMESH_TRY(const auto chunk, reader_.open_chunk(tensor, item.slot));
  const bool check = check_sums_ && checked_source::can_check(*chunk);
  auto done = check ? read_box(*checked(item.slot, chunk), chunk->tensor, part, to, options_)
                    : read_box(*chunk->source, chunk->tensor, part, to, options_);
  if (done || !done.cause().key.empty()) return done;
  error cause = std::move(done).take_error();
  if (cause.boxes.empty()) cause.boxes.push_back(reader_.contents().chunk_box(tensor, item.slot));
  return std::move(cause).with_key(tensor.key);
}

std::shared_ptr<checked_source> chunk_source::checked(std::int32_t chunk,
                                                      const std::shared_ptr<const opened_chunk>& opened) {
  const std::scoped_lock guard(lock_);
  auto& source = checked_[chunk];
  if (!source) source = std::make_shared<checked_source>(opened);
  return source;
}

bool chunk_source::reads_in_order(item_id item) {
  const auto chunk = reader_.open_chunk(tensor_of(item.slot), item.slot);
  return chunk && (*chunk)->reads_in_order;
}

result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const fs::path& path, const open_options& options) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status))
    return code && code != std::errc::no_such_file_or_directory
               ? fail_sys(code.value(), "cannot open", path.string())
               : fail(errc::io, "does not exist").with_file(path.string());
  if (!fs::is_directory(status)) {
    if (path.filename().string().ends_with(".safetensors")) return open_safetensors(path, options);
    if (path.filename() == ".metadata") return open_dcp(path.parent_path(), options);
    // By content: a safetensors header begins with a length and "{"; everything else is for torch.load.
    SHARDMESH_TRY(const bool is_safetensors, looks_like_safetensors(path));
    return is_safetensors ? open_safetensors(path, options) : open_torch_file(path, options);
  }
  SHARDMESH_TRY(const auto format, format_of_folder(path));
  if (format) return *format == checkpoint_format::dcp ? open_dcp(path, options) : open_hf(path, options);
  const std::string below = checkpoints_below(path);
  return fail(errc::bad_format, "is not a checkpoint")
      .with_file(path.string())
      .with_values(".metadata, *.distcp or *.safetensors in the folder", "none of them")
      .with_hint(below.empty() ? "" : "it holds these: " + below);
}

}  // namespace shardmesh
