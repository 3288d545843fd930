// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import shardmesh.safetensors;
import :folder_plan;

namespace shardmesh::torch_checkpointing {
namespace {

class folder_save {
 public:
  folder_save(std::vector<output_tensor> tensors, std::span<const output_object> objects, const folder_options& format,
              const save_options& options)
      : tensors_(std::move(tensors)), objects_(objects), format_(format), options_(options) {}

  result<save_report> run(const std::filesystem::path& destination, element_source source) {
    std::vector<error> problems;
    for (const output_tensor& tensor : tensors_)
      if (auto can = torch_file::tensor_pickle(tensor.type, tensor.bytes.from.global_shape()); !tensor.archive && !can)
        problems.push_back(std::move(can).error().with_key(tensor.key));
    if (!problems.empty()) return fail_all(std::move(problems));
    SHARDMESH_TRY(write(destination, source));
    return std::move(report_);
  }

 private:
  // A file of the plan after its layout is known.
  struct open_file {
    std::int32_t number = 0, first_slot = 0;
    std::optional<torch_file::state_file> state;  // for torch.save files
    safetensors::file_layout layout;              // for safetensors files
  };

  result<void> write(const std::filesystem::path& destination, element_source source) {
    SHARDMESH_TRY(plan_, plan_folder(tensors_, objects_, format_));
    SHARDMESH_TRY(lay_out());
    SHARDMESH_TRY(staged_output output, staged_output::directory(destination, options_.output()));
    SHARDMESH_TRY(output.reserve(size_bytes_));
    SHARDMESH_TRY(std::vector<torch_file::written_item> items, place(output));
    torch_file::item_writer writer(output, std::move(items), source);
    SHARDMESH_TRY(writer.write_empty_items());
    for (const open_file& file : files_)
      if (file.state) SHARDMESH_TRY(file.state->write_archived(writer));
    SHARDMESH_TRY(write_items(transfers_, keys_, source, writer, run_options_of(options_)));
    SHARDMESH_TRY(writer.check_complete());
    SHARDMESH_TRY(finish(output, writer));
    SHARDMESH_TRY(output.prepare());
    SHARDMESH_TRY(ask_before_commit(options_));
    SHARDMESH_TRY(output.commit());
    report_.notes = std::move(plan_.notes);
    report_.notes.insert(report_.notes.end(), output.notes().begin(), output.notes().end());
    report_.files = static_cast<std::int64_t>(files_.size());
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    for (const torch_file::written_item& item : writer.items()) report_.bytes += item.size_bytes;
    return {};
  }

  // Lays out every file before the destination is touched.
  result<void> lay_out() {
    for (planned_file& file : plan_.files) {
      open_file made;
      std::int64_t size = 0;
      if (file.how == payload::torch) {
        SHARDMESH_TRY(made.state, torch_file::state_file::make(file.entries));
        size = made.state->size_bytes();
        file.entries = {};  // with many ranks, the entries take most of the memory
      } else {
        std::vector<safetensors::tensor> described;
        for (const torch_file::state_entry& entry : file.entries)
          described.push_back({dotted(entry.where), entry.type, entry.sizes});
        SHARDMESH_TRY(made.layout, safetensors::layout_file(described));
        size = made.layout.size_bytes;
      }
      const auto sum = checked_add(size_bytes_, size);
      size_bytes_ = sum.value_or(std::numeric_limits<std::int64_t>::max());
      files_.push_back(std::move(made));
    }
    return {};
  }

  // Creates the files, assigns an item to every part of a tensor, and sets every tensor's `to`.
  result<std::vector<torch_file::written_item>> place(staged_output& output) {
    std::vector<torch_file::written_item> items;
    std::vector<distribution_builder> parts;
    for (const output_tensor& tensor : tensors_)
      parts.emplace_back(tensor.bytes.from.global_shape(), owner_space::items);
    for (std::size_t f = 0; f < files_.size(); ++f) {
      open_file& file = files_[f];
      const planned_file& planned = plan_.files[f];
      SHARDMESH_TRY(file.number, output.add_file(planned.name));
      file.first_slot = static_cast<std::int32_t>(items.size());
      if (file.state) file.state->place(file.number, items);
      for (const planned_part& part : planned.parts) {
        std::int32_t slot = static_cast<std::int32_t>(items.size());
        if (file.state) {
          slot = *file.state->slot_of(part.entry);
        } else {
          const torch_file::state_entry& entry = planned.entries[part.entry];
          const std::int64_t begin = file.layout.begins[part.entry];
          items.push_back({file.number, begin, begin, size_bytes(entry.type, part.where.volume()).value_or(0), false,
                           entry.type, entry.sizes});
        }
        parts[part.tensor].add(file.number, slot, part.where.offsets, part.where.sizes);
      }
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      output_tensor& tensor = tensors_[i];
      if (tensor.archive) continue;
      auto to = parts[i].finish();
      if (!to) return std::move(to).error().with_key(tensor.key);
      tensor.bytes.to = *std::move(to);
      tensor.bytes.to_type = tensor.type;
      const cover_report cover = check_cover(tensor.bytes.to, 1);
      if (!cover.ok()) return to_error(cover.problems.front()).with_key(tensor.key);
      transfers_.push_back(tensor.bytes);
      keys_.push_back(tensor.key);
    }
    return items;
  }

  // Writes the bytes around the elements, metadata.pkl, and the checksum record.
  result<void> finish(staged_output& output, const torch_file::item_writer& writer) {
    std::vector<checksum_range> ranges;
    for (std::size_t f = 0; f < files_.size(); ++f) {
      const std::string& name = plan_.files[f].name;
      if (files_[f].state) {
        SHARDMESH_TRY(std::vector<checksum_range> around, files_[f].state->finish(output, writer, name));
        ranges.insert(ranges.end(), std::move_iterator(around.begin()), std::move_iterator(around.end()));
      } else {
        const auto header = std::as_bytes(std::span(files_[f].layout.header));
        SHARDMESH_TRY(output.write(files_[f].number, 0, header));
        ranges.push_back({name, 0, static_cast<std::int64_t>(header.size()), to_hex(xxh3(header))});
      }
      const std::size_t end =
          f + 1 < files_.size() ? static_cast<std::size_t>(files_[f + 1].first_slot) : writer.items().size();
      for (std::size_t slot = static_cast<std::size_t>(files_[f].first_slot); slot < end; ++slot)
        if (const torch_file::written_item& item = writer.items()[slot]; item.size_bytes > 0)
          ranges.push_back({name, item.begin, item.size_bytes, to_hex(writer.digest(slot))});
    }
    const std::vector<std::byte> described = format_metadata(plan_.described);
    SHARDMESH_TRY(const std::int32_t number, output.add_file(metadata_file_name));
    SHARDMESH_TRY(output.write(number, 0, described));
    ranges.push_back(
        {std::string(metadata_file_name), 0, static_cast<std::int64_t>(described.size()), to_hex(xxh3(described))});
    const std::string record = format_checksums(ranges);
    SHARDMESH_TRY(const std::int32_t record_number, output.add_file(checksum_file_name));
    return output.write(record_number, 0, std::as_bytes(std::span(record)));
  }

  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const folder_options& format_;
  const save_options& options_;
  save_report report_;
  folder_plan plan_;
  std::vector<open_file> files_;
  std::int64_t size_bytes_ = 0;
  std::vector<tensor_transfer> transfers_;
  std::vector<std::string> keys_;
};

}  // namespace

result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const folder_options& format,
                         const save_options& options) {
  const detail::call_scope limits(options.call().named("save"));
  return folder_save(std::move(tensors), objects, format, options).run(destination, source);
}

}  // namespace shardmesh::torch_checkpointing
