// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

namespace shardmesh::dcp {

std::string file_name(std::int32_t rank) {
  return fmt::format("__{}_0.distcp", rank);
}

std::int64_t data_bytes_of(std::span<const output_tensor> tensors, const referred_items& referred) {
  std::int64_t total = 0, number = 0;
  for (const output_tensor& tensor : tensors)
    for (const output_chunk& chunk : tensor.chunks) {
      if (referred.contains(number++)) continue;
      const auto size = size_bytes(tensor.type, chunk.where.volume());
      const auto sum = size ? checked_add(total, *size) : std::nullopt;
      if (!sum) return std::numeric_limits<std::int64_t>::max();
      total = *sum;
    }
  return total;
}

result<rank_files::rank_file*> rank_files::file_of(std::int32_t rank) {
  const auto [entry, is_new] = files_.try_emplace(rank);
  rank_file& file = entry->second;
  if (is_new) {
    file.name = file_name(rank);
    if (writes(rank)) {
      SHARDMESH_TRY(file.number, output_.add_file(file.name));
    }
  }
  return &file;
}

result<item_place> rank_files::place(std::int32_t rank, std::int64_t length) {
  SHARDMESH_TRY(rank_file* const file, file_of(rank));
  const auto end = checked_add(file->size_bytes, length);
  if (!end) return fail(errc::overflow, "a rank's file does not fit in 64 bits").with_rank(rank);
  return item_place{file->name, std::exchange(file->size_bytes, *end), length};
}

result<void> rank_files::write_archive(std::int32_t rank, const item_place& at, std::span<const std::byte> bytes) {
  if (!writes(rank)) return {};
  SHARDMESH_TRY(const rank_file* const file, file_of(rank));
  ranges_.push_back({at.file, at.offset, at.length, to_hex(xxh3(bytes))});
  return output_.write(file->number, at.offset, bytes);
}

result<void> rank_files::place_tensor(output_tensor& tensor) {
  distribution_builder chunks(tensor.bytes.from.global_shape(), owner_space::items);
  for (const output_chunk& chunk : tensor.chunks) {
    SHARDMESH_TRY(const torch_file::tensor_archive archive,
                  torch_file::tensor_archive::make(tensor.type, chunk.where.sizes));
    data_bytes_ += archive.data_bytes();
    if (const auto referred = referred_.find(std::ssize(places_)); referred != referred_.end()) {
      referred_bytes_ += archive.data_bytes();
      if (writes(chunk.rank)) skipped_bytes_ += archive.data_bytes();
      places_.push_back(referred->second.at);
      continue;
    }
    SHARDMESH_TRY(item_place at, place(chunk.rank, archive.size_bytes()));
    if (writes(chunk.rank)) {
      const auto prefix = static_cast<std::int64_t>(archive.prefix().size());
      const std::int32_t number = files_[chunk.rank].number;
      chunks.add(number, static_cast<std::int32_t>(items_.size()), chunk.where.offsets, chunk.where.sizes);
      items_.push_back(
          {number, at.offset, at.offset + prefix, archive.data_bytes(), true, tensor.type, chunk.where.sizes});
    }
    places_.push_back(std::move(at));
  }
  SHARDMESH_TRY(tensor.bytes.to, chunks.finish());
  tensor.bytes.to_type = tensor.type;
  return {};
}

result<void> rank_files::write_tensors(std::span<const output_tensor> tensors, element_source source,
                                       const item_run_options& options) {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  for (const output_tensor& tensor : tensors) {
    if (tensor.archive || tensor.bytes.to.fragment_count() == 0) continue;
    transfers.push_back(tensor.bytes);
    keys.push_back(tensor.key);
  }
  if (options.progress && skipped_bytes_ > 0) options.progress(skipped_bytes_);
  torch_file::item_writer writer(output_, std::move(items_), source);
  SHARDMESH_TRY(writer.write_empty_items());
  SHARDMESH_TRY(write_items(transfers, keys, source, writer, options));
  SHARDMESH_TRY(writer.check_complete());
  std::map<std::int32_t, const std::string*> names;
  for (const auto& [rank, file] : files_) names[file.number] = &file.name;
  for (std::size_t i = 0; i < writer.items().size(); ++i) {
    const torch_file::written_item& item = writer.items()[i];
    ranges_.push_back({*names[item.file], item.begin, writer.end(i) - item.begin, to_hex(writer.digest(i))});
  }
  return {};
}

std::vector<checksum_range> rank_files::referred_ranges() const {
  std::vector<checksum_range> ranges;
  std::set<std::pair<std::string_view, std::int64_t>> known;  // file, offset
  for (const auto& [number, item] : referred_)
    if (known.emplace(item.at.file, item.at.offset).second)
      ranges.push_back({item.at.file, item.at.offset, item.at.length, item.digits});
  return ranges;
}

result<void> finish_folder(staged_output& output, std::span<const output_tensor> tensors,
                           std::span<const output_object> objects, std::span<const item_place> places,
                           const dcp::extras& extras, std::vector<checksum_range> ranges) {
  const std::vector<std::byte> metadata = format_metadata(tensors, objects, places, extras);
  SHARDMESH_TRY(const std::int32_t file, output.add_file(".metadata"));
  SHARDMESH_TRY(output.write(file, 0, metadata));
  ranges.push_back({".metadata", 0, static_cast<std::int64_t>(metadata.size()), to_hex(xxh3(metadata))});
  SHARDMESH_TRY(copy_side_files(output, extras.side_files, ranges));
  const std::string record = format_checksums(ranges);
  SHARDMESH_TRY(const std::int32_t number, output.add_file(checksum_file_name));
  return output.write(number, 0, std::as_bytes(std::span(record)));
}

}  // namespace shardmesh::dcp
