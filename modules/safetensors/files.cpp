// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::int64_t saturating(std::int64_t a, std::int64_t b) {
  return checked_add(a, b).value_or(std::numeric_limits<std::int64_t>::max());
}

}  // namespace

std::int64_t planned_files::bytes_of(std::size_t tensor) const {
  const safetensors::tensor& one = tensors_[tensor];
  return size_bytes(one.type, box::whole(one.shape).volume()).value_or(0);
}

std::int64_t planned_files::data_bytes() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) total = saturating(total, bytes_of(i));
  return total;
}

std::int64_t planned_files::file_bytes() const {
  std::int64_t total = 0;
  for (const planned_file& file : files_) total = saturating(total, file.layout.size_bytes);
  return total;
}

result<planned_files> planned_files::make(std::vector<tensor> tensors, const file_options& format) {
  planned_files made;
  made.tensors_ = std::move(tensors);
  made.is_folder_ = format.folder;
  made.stem_ = format.stem;
  if (!format.folder) {
    made.shards_.file_names = {""};
    made.shards_.file_of.resize(made.tensors_.size());
  } else {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < made.tensors_.size(); ++i) sizes.push_back(made.bytes_of(i));
    SHARDMESH_TRY(made.shards_, plan_hf_shards(sizes, format.max_shard_bytes, format.stem));
  }
  for (const std::string& name : made.shards_.file_names) made.files_.push_back({name, {}, {}});
  for (std::size_t i = 0; i < made.tensors_.size(); ++i) made.files_[made.shards_.file_of[i]].tensors.push_back(i);
  return made;
}

result<void> planned_files::lay_out(std::span<const texts> said, std::string_view objects,
                                    const std::filesystem::path& destination) {
  places_.resize(tensors_.size());
  for (std::size_t f = 0; f < files_.size(); ++f) {
    planned_file& file = files_[f];
    texts metadata = said.empty() ? texts() : said[f];
    if (std::none_of(metadata.begin(), metadata.end(), [](const auto& text) { return text.first == "format"; }))
      metadata.insert(metadata.begin(), {"format", "pt"});
    metadata.emplace_back(checksum_key, checksum_placeholder(file.tensors.size()));
    if (!is_folder_ && !objects.empty()) metadata.emplace_back(embedded_objects_key, objects);
    std::vector<tensor> entries;
    for (const std::size_t i : file.tensors) entries.push_back(tensors_[i]);
    auto layout = layout_file(entries, metadata);
    if (!layout)  // a single file has no name of its own
      return std::move(layout).error().with_file((file.name.empty() ? destination : destination / file.name).string());
    file.layout = *std::move(layout);
    for (std::size_t k = 0; k < file.tensors.size(); ++k) places_[file.tensors[k]] = {f, file.layout.begins[k]};
  }
  return {};
}

result<void> planned_files::add_to(staged_output& output) const {
  for (const planned_file& file : files_) SHARDMESH_TRY(output.add_file(file.name));
  return {};
}

result<void> planned_files::write_headers(staged_output& output, std::span<const digest128> sums) {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    planned_file& file = files_[f];
    std::vector<digest128> in_order;
    for (const std::size_t k : file.layout.order) in_order.push_back(sums[file.tensors[k]]);
    std::string& header = file.layout.header;
    SHARDMESH_TRY(patch_checksums(header, in_order));
    SHARDMESH_TRY(output.write(static_cast<std::int32_t>(f), 0, bytes_of_text(header)));
    if (!is_folder_) continue;
    ranges_.push_back({file.name, 0, static_cast<std::int64_t>(header.size()), to_hex(xxh3(bytes_of_text(header)))});
    for (const std::size_t k : file.layout.order) {
      const std::size_t tensor = file.tensors[k];
      ranges_.push_back({file.name, file.layout.begins[k], bytes_of(tensor), to_hex(sums[tensor])});
    }
  }
  return {};
}

result<void> planned_files::finish_folder(staged_output& output, std::string_view objects,
                                          std::span<const side_file> side_files) {
  if (!objects.empty()) SHARDMESH_TRY(add_text(output, "objects.json", objects));
  if (shards_.needs_index()) {
    std::vector<std::pair<std::string, std::string>> weight_map;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      weight_map.emplace_back(tensors_[i].name, shards_.file_names[shards_.file_of[i]]);
    SHARDMESH_TRY(add_text(output, hf_index_name_of(stem_), write_hf_index(shards_.total_size, weight_map)));
  }
  SHARDMESH_TRY(copy_side_files(output, side_files, ranges_));
  const std::string record = format_checksums(ranges_);
  SHARDMESH_TRY(const std::int32_t number, output.add_file(checksum_file_name));
  return output.write(number, 0, bytes_of_text(record));
}

result<void> planned_files::add_text(staged_output& output, std::string_view name, std::string_view text) {
  SHARDMESH_TRY(const std::int32_t number, output.add_file(name));
  ranges_.push_back({std::string(name), 0, static_cast<std::int64_t>(text.size()), to_hex(xxh3(bytes_of_text(text)))});
  return output.write(number, 0, bytes_of_text(text));
}

}  // namespace shardmesh::safetensors
