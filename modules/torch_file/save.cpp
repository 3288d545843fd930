// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :state_pickle;

namespace shardmesh::torch_file {
namespace {

// As PyTorch names an archive: after its file.
std::string prefix_of(const std::filesystem::path& destination) {
  const std::string stem = destination.stem().string();
  const bool is_plain = std::all_of(stem.begin(), stem.end(), [](char c) { return c >= ' ' && c <= '~' && c != '/'; });
  return is_plain && !stem.empty() ? stem : "archive";
}

class pt_save {
 public:
  pt_save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
          std::span<const output_object> objects, const save_options& options)
      : destination_(destination), tensors_(std::move(tensors)), objects_(objects), options_(options) {}

  save_report run(any_item_source source) {
    for (const output_tensor& tensor : tensors_)
      if (auto can = tensor_pickle(tensor.type, tensor.bytes.from.global_shape()); !tensor.archive && !can)
        report_.problems.push_back(std::move(can).error().with_key(tensor.key));
    if (!report_.ok()) return std::move(report_);
    auto done = write(source);
    if (!done) report_.problems.push_back(std::move(done).error());
    return std::move(report_);
  }

 private:
  result<void> write(any_item_source source) {
    SHARDMESH_TRY(state_, pickle_of_state(tensors_, objects_));
    SHARDMESH_TRY(staged_output output, staged_output::file(destination_, options_.output));
    SHARDMESH_TRY(const std::int32_t file, output.add_file(""));
    torch_file::archive places(prefix_of(destination_));
    std::vector<written_item> items = lay_out(places, file);
    SHARDMESH_CHECK(output.reserve(places.size_bytes()));
    SHARDMESH_CHECK(place_tensors(items));
    item_writer writer(output, std::move(items));
    SHARDMESH_CHECK(writer.write_empty_items());
    for (std::size_t i = 0; i < state_.storages.size(); ++i)
      if (const auto& bytes = state_.storages[i].bytes; !bytes.empty())
        SHARDMESH_CHECK(writer.write({file, static_cast<std::int32_t>(i)}, 0, bytes));
    SHARDMESH_CHECK(run_to_items(transfers_, keys_, source, writer, run_options_of(options_)));
    SHARDMESH_CHECK(writer.check_complete());
    SHARDMESH_CHECK(write_frame(output, file, writer));
    if (options_.call.cancel.stop_requested()) return fail(errc::cancelled, "the save was cancelled");
    SHARDMESH_CHECK(output.commit());
    report_.notes = output.notes();
    report_.files = 1;
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    for (const written_item& item : writer.items()) report_.bytes += item.size_bytes;
    return {};
  }

  std::int64_t bytes_of(std::size_t storage) const {
    const state_pickle::written_storage& one = state_.storages[storage];
    if (!one.tensor) return static_cast<std::int64_t>(one.bytes.size());
    const output_tensor& tensor = tensors_[*one.tensor];
    return *size_bytes(tensor.type, *checked_volume(tensor.bytes.from.global_shape()));
  }

  // Offsets do not depend on the data: checksums lie behind it.
  std::vector<written_item> lay_out(torch_file::archive& places, std::int32_t file) const {
    std::vector<written_item> items;
    places.head(state_.data_pkl);
    for (std::size_t i = 0; i < state_.storages.size(); ++i) {
      const std::int64_t size = bytes_of(i);
      places.begin_record(fmt::format("data/{}", i), size);
      const std::int64_t begin = places.size_bytes() - size;
      items.push_back(
          {.file = file, .begin = begin, .data_begin = begin, .size_bytes = size, .sizes = {}, .wants_crc32 = true});
      places.end_record(0);
    }
    places.tail();
    return items;
  }

  result<void> place_tensors(std::span<const written_item> items) {
    for (std::size_t i = 0; i < state_.storages.size(); ++i) {
      if (!state_.storages[i].tensor) continue;
      output_tensor& tensor = tensors_[*state_.storages[i].tensor];
      const extents& shape = tensor.bytes.from.global_shape();
      const fragment whole{box::whole(shape), items[i].file, static_cast<std::int32_t>(i),
                           extents::filled(shape.rank(), 0), 0};
      SHARDMESH_TRY(tensor.bytes.to, distribution::from_fragments(shape, {&whole, 1}, owner_space::items));
      tensor.bytes.to_type = tensor.type;
      transfers_.push_back(tensor.bytes);
      keys_.push_back(tensor.key);
    }
    return {};
  }

  // What lies between and around the storages, with their checksums.
  result<void> write_frame(staged_output& output, std::int32_t file, const item_writer& writer) const {
    torch_file::archive frame(prefix_of(destination_));
    std::int64_t at = 0;
    std::vector<std::byte> waiting = frame.head(state_.data_pkl);
    const auto append = [&](const std::vector<std::byte>& more) {
      waiting.insert(waiting.end(), more.begin(), more.end());
    };
    for (std::size_t i = 0; i < writer.items().size(); ++i) {
      const written_item& item = writer.items()[i];
      append(frame.begin_record(fmt::format("data/{}", i), item.size_bytes));
      if (item.size_bytes > 0) {
        SHARDMESH_CHECK(output.write(file, at, waiting));
        at = item.data_begin + item.size_bytes;
        waiting = frame.end_record(writer.crc32(i));
      }
    }
    append(frame.tail());
    return output.write(file, at, waiting);
  }

  const std::filesystem::path& destination_;
  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const save_options& options_;
  save_report report_;
  state_pickle state_;
  std::vector<tensor_transfer> transfers_;
  std::vector<std::string> keys_;
};

}  // namespace

save_report save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                 std::span<const output_object> objects, any_item_source source, const save_options& options) {
  return pt_save(destination, std::move(tensors), objects, options).run(source);
}

}  // namespace shardmesh::torch_file
