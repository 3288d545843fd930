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
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :flattened;
import :megatron;

namespace shardmesh::dcp {
namespace fs = places;
namespace {

// Returns the largest number of pieces. A chunk of a flat tensor becomes a few boxes, or one per part if it merges the
// chunks of several ranks. Without this limit, a few values in a file could fill the memory with pieces.
std::size_t most_pieces(const catalog& stored) {
  return (std::size_t{1} << 18) + 64 * stored.chunk_places.size();
}

class megatron_reader final : public composed_reader, public torch_file::archived_objects {
 public:
  explicit megatron_reader(std::unique_ptr<checkpoint_reader> plain)
      : composed_reader(checkpoint_format::dcp, plain->path()) {
    contents_.version = plain->contents().version;
    contents_.texts = plain->contents().texts;
    plain_ = plain.get();
    add_part(std::move(plain));
  }

  result<void> add_stored(const std::vector<flattened_tensor>& flattened) {
    const catalog& stored = part(0).contents();
    left_ = most_pieces(stored);
    auto next = flattened.begin();
    for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
      const tensor_entry& tensor = stored.tensors[i];
      if (next != flattened.end() && next->index == i)
        SHARDMESH_TRY(add_flattened(*next++));
      else
        SHARDMESH_TRY(add_whole_tensor(tensor.key, tensor.where, 0, i));
    }
    for (std::size_t i = 0; i < stored.objects.size(); ++i)
      SHARDMESH_TRY(add_object(stored.objects[i].key, stored.objects[i].where, 0, i));
    if (!flattened.empty())
      notes_.push_back(fmt::format("{} tensor{} stored flat by Megatron {} shown whole, in the shape of mcore_data",
                                   flattened.size(), flattened.size() == 1 ? "" : "s",
                                   flattened.size() == 1 ? "is" : "are"));
    return {};
  }

  // Adds the entries of common.pt, and returns the keys that were added.
  std::set<std::string> add_common(const open_options& options, const std::shared_ptr<const byte_source>& bytes) {
    std::set<std::string> keys;
    auto opened = open_common(options, bytes);
    if (!opened) {
      problems_.push_back(std::move(opened).error());
      return keys;
    }
    const std::size_t number = add_part(*std::move(opened));
    const catalog& common = part(number).contents();
    const auto keep = [&](const std::string& key, result<void> added) {
      if (added)
        keys.insert(key);
      else
        problems_.push_back(std::move(added).error().with_file((path_ / common_file).string()));
    };
    for (std::size_t i = 0; i < common.tensors.size(); ++i)
      keep(common.tensors[i].key, add_whole_tensor(common.tensors[i].key, common.tensors[i].where, number, i));
    for (std::size_t i = 0; i < common.objects.size(); ++i)
      keep(common.objects[i].key, add_object(common.objects[i].key, common.objects[i].where, number, i));
    return keys;
  }

  const checkpoint_reader& stored() const override { return plain_->stored(); }

  result<torch_file::opened_object> open_object(std::size_t index) override {
    const origin& from = origin_of_object(index);
    return torch_file::open_object(part(from.part), from.index);
  }

 private:
  result<void> add_flattened(const flattened_tensor& flat) {
    const catalog& stored = part(0).contents();
    tensor_entry whole = stored.tensors[flat.index];
    const std::int32_t first = whole.first_chunk, count = whole.chunk_count;
    whole.shape = flat.shape;
    whole.properties.strides.reset();  // they describe the flat form
    const std::string key = whole.key;
    SHARDMESH_TRY(add_tensor(std::move(whole)));
    for (std::int32_t chunk = first; chunk < first + count; ++chunk) {
      auto pieces = pieces_of(flat, stored.chunk_box(stored.tensors[flat.index], chunk), left_);
      if (!pieces) return std::move(pieces).error().with_key(key).with_file((path_ / ".metadata").string());
      left_ -= pieces->size();
      for (const whole_piece& piece : *pieces)
        SHARDMESH_TRY(add_chunk(piece.where, {0, flat.index, chunk, piece.first, piece.where.sizes}));
    }
    return {};
  }

  // As with the checkpoint's other files, a link may not lead out of the folder.
  result<std::unique_ptr<checkpoint_reader>> open_common(const open_options& options,
                                                         const std::shared_ptr<const byte_source>& bytes) const {
    if (bytes) return torch_file::open_section(path_ / common_file, bytes, 0, options);
    SHARDMESH_TRY(check_inside(path_, std::string(common_file)));
    auto opened = torch_file::open(path_ / common_file, options);
    if (!opened)
      return std::move(opened).error().with_hint(
          "restore the file: Megatron keeps in it all values that are not sharded");
    return opened;
  }

  const checkpoint_reader* plain_;
  std::size_t left_ = 0;  // pieces that may still be made
};

}  // namespace

result<megatron_view_result> megatron_view(std::unique_ptr<checkpoint_reader> plain,
                                           const std::vector<flattened_tensor>& flattened, const open_options& options,
                                           const std::shared_ptr<const byte_source>& common) {
  megatron_view_result made;
  auto reader = std::make_unique<megatron_reader>(std::move(plain));
  SHARDMESH_TRY(reader->add_stored(flattened));
  std::error_code code;
  if (common || fs::exists(fs::symlink_status(reader->path() / common_file, code)))
    made.common_keys = reader->add_common(options, common);
  made.reader = std::move(reader);
  return made;
}

std::optional<std::string> bucket_note(const catalog& stored) {
  const auto is_bucket = [](const auto& entry) {
    const std::string_view key = entry.key;
    return key.find("optimizer.distributed.dp_group_idx_") != std::string_view::npos &&
           (key.find(".gbuf_idx_") != std::string_view::npos || key.find(".param_state") != std::string_view::npos);
  };
  const auto count = std::count_if(stored.tensors.begin(), stored.tensors.end(), is_bucket) +
                     std::count_if(stored.objects.begin(), stored.objects.end(), is_bucket);
  if (count == 0) return std::nullopt;
  return fmt::format(
      "{} {} of Megatron's distributed optimizer {} in the order of its buffers: no file says which "
      "parameter an element belongs to, so they are shown as they are stored",
      count, count == 1 ? "entry" : "entries", count == 1 ? "is" : "are");
}

}  // namespace shardmesh::dcp
