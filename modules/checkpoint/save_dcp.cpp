// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

// A rank's file, growing: items get their offsets in the order they are placed.
struct rank_file {
  std::int32_t number = 0;  // in the staged output
  std::string name;
  std::int64_t size_bytes = 0;
};

class dcp_save {
 public:
  dcp_save(std::vector<output_tensor> tensors, std::span<const output_object> objects, const dcp_extras& extras,
           const save_options& options)
      : tensors_(std::move(tensors)), objects_(objects), extras_(extras), options_(options) {}

  save_report run(const std::filesystem::path& destination, any_item_source source) {
    find_problems();
    if (!report_.ok()) return std::move(report_);
    auto done = write(destination, source);
    if (!done) report_.problems.push_back(std::move(done).take_error());
    return std::move(report_);
  }

 private:
  void find_problems() {
    std::set<std::string_view> keys;
    const auto check_key = [&](const std::string& key) {
      if (!keys.insert(key).second)
        report_.problems.push_back(fail(errc::duplicate_key, "two entries have this key").with_key(key));
    };
    for (const output_tensor& tensor : tensors_) {
      check_key(tensor.key);
      if (tensor.archive) continue;
      if (auto can = torch_tensor_archive::make(tensor.type, tensor.bytes.from.global_shape()); !can)
        report_.problems.push_back(std::move(can).take_error().with_key(tensor.key));
    }
    for (const output_object& object : objects_) check_key(object.key);
  }

  result<void> write(const std::filesystem::path& destination, any_item_source source) {
    SHARDMESH_TRY(staged_output output, staged_output::directory(destination, options_.output));
    SHARDMESH_CHECK(add_files(output));
    // Objects come first in every file, as PyTorch places them; their archives are known now.
    std::vector<dcp_place> object_places;
    for (const output_object& object : objects_) {
      SHARDMESH_TRY(const dcp_place place, write_archive(output, object.rank, object.key, object.archive));
      object_places.push_back(place);
    }
    SHARDMESH_TRY(std::vector<written_item> items, place_tensors(output));
    SHARDMESH_CHECK(write_tensors(output, std::move(items), source));
    places_.insert(places_.end(), object_places.begin(), object_places.end());
    const std::vector<std::byte> metadata = format_dcp_metadata(tensors_, objects_, places_, extras_);
    SHARDMESH_CHECK(add_whole_file(output, ".metadata", metadata));
    const std::string record = format_checksums(ranges_);
    SHARDMESH_TRY(const std::int32_t number, output.add_file(checksum_file_name));
    SHARDMESH_CHECK(output.write(number, 0, std::as_bytes(std::span(record))));
    SHARDMESH_CHECK(output.commit());
    report_.files = static_cast<std::int64_t>(files_.size());
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    return {};
  }

  result<void> add_files(staged_output& output) {
    std::set<std::int32_t> ranks;
    for (const output_object& object : objects_) ranks.insert(object.rank);
    for (const output_tensor& tensor : tensors_)
      for (const output_chunk& chunk : tensor.chunks) ranks.insert(chunk.rank);
    for (const std::int32_t rank : ranks) {
      rank_file file;
      file.name = fmt::format("__{}_0.distcp", rank);
      SHARDMESH_TRY(file.number, output.add_file(file.name));
      files_[rank] = std::move(file);
    }
    return {};
  }

  result<dcp_place> write_archive(staged_output& output, std::int32_t rank, const std::string& key,
                                  const std::function<result<std::vector<std::byte>>()>& make) {
    auto bytes = make();
    if (!bytes) return std::move(bytes).take_error().with_key(key);
    rank_file& file = files_[rank];
    SHARDMESH_CHECK(output.write(file.number, file.size_bytes, *bytes));
    const dcp_place place{file.name, file.size_bytes, static_cast<std::int64_t>(bytes->size())};
    ranges_.push_back({file.name, place.offset, place.length, to_hex(xxh3(*bytes))});
    file.size_bytes += place.length;
    return place;
  }

  // Gives every chunk its item and every tensor its `to` distribution. Opaque tensors are written at once.
  result<std::vector<written_item>> place_tensors(staged_output& output) {
    std::vector<written_item> items;
    for (output_tensor& tensor : tensors_) {
      if (tensor.archive) {
        SHARDMESH_TRY(dcp_place place, write_archive(output, tensor.chunks.front().rank, tensor.key, tensor.archive));
        places_.push_back(std::move(place));
        continue;
      }
      distribution_builder chunks(tensor.bytes.from.global_shape(), owner_space::items);
      for (const output_chunk& chunk : tensor.chunks) {
        SHARDMESH_TRY(const torch_tensor_archive archive, torch_tensor_archive::make(tensor.type, chunk.where.sizes));
        rank_file& file = files_[chunk.rank];
        const auto prefix = static_cast<std::int64_t>(archive.prefix().size());
        chunks.add(file.number, static_cast<std::int32_t>(items.size()), chunk.where.offsets, chunk.where.sizes);
        items.push_back({file.number, file.size_bytes, file.size_bytes + prefix, archive.data_bytes(), true,
                         tensor.type, chunk.where.sizes});
        places_.push_back({file.name, file.size_bytes, archive.size_bytes()});
        file.size_bytes += archive.size_bytes();
        report_.bytes += archive.data_bytes();
      }
      auto made = chunks.finish();
      if (!made) return std::move(made).take_error().with_key(tensor.key);
      const cover_report cover = check_cover(*made, 1);
      if (!cover.ok()) return to_error(cover.problems.front()).with_key(tensor.key);
      tensor.bytes.to = std::move(*made);
      tensor.bytes.to_type = tensor.type;
    }
    return items;
  }

  result<void> write_tensors(staged_output& output, std::vector<written_item> items, any_item_source source) {
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    for (const output_tensor& tensor : tensors_) {
      if (tensor.archive) continue;
      transfers.push_back(tensor.bytes);
      keys.push_back(tensor.key);
    }
    item_writer writer(output, std::move(items));
    SHARDMESH_CHECK(writer.write_empty_items());
    SHARDMESH_CHECK(run_to_items(transfers, keys, source, writer, run_options_of(options_)));
    SHARDMESH_CHECK(writer.check_complete());
    std::map<std::int32_t, const std::string*> names;
    for (const auto& [rank, file] : files_) names[file.number] = &file.name;
    for (std::size_t i = 0; i < writer.items().size(); ++i) {
      const written_item& item = writer.items()[i];
      ranges_.push_back({*names[item.file], item.begin, writer.end(i) - item.begin, to_hex(writer.digest(i))});
    }
    return {};
  }

  result<void> add_whole_file(staged_output& output, std::string_view name, std::span<const std::byte> bytes) {
    SHARDMESH_TRY(const std::int32_t number, output.add_file(name));
    ranges_.push_back({std::string(name), 0, static_cast<std::int64_t>(bytes.size()), to_hex(xxh3(bytes))});
    return output.write(number, 0, bytes);
  }

  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const dcp_extras& extras_;
  const save_options& options_;
  save_report report_;
  std::map<std::int32_t, rank_file> files_;
  std::vector<dcp_place> places_;
  std::vector<checksum_range> ranges_;
};

}  // namespace

save_report save_dcp(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                     std::span<const output_object> objects, any_item_source source, const dcp_extras& extras,
                     const save_options& options) {
  return dcp_save(std::move(tensors), objects, extras, options).run(destination, source);
}

}  // namespace shardmesh
