// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.gguf;

import shardmesh.storage;
import shardmesh.torch_file;
import shardmesh.transfer;
import :block_sink;
import :file_plan;

namespace shardmesh::gguf {
namespace {

// Bytes of blocks that are copied at a time.
constexpr std::int64_t copied_at_once = std::int64_t{1} << 20;

result<distribution> whole_item(const extents& shape, std::int32_t slot) {
  const fragment whole{box::whole(shape), 0, slot, extents::filled(shape.rank(), 0), 0};
  return distribution::from_fragments(shape, {&whole, 1}, owner_space::items);
}

class gguf_save {
 public:
  gguf_save(std::vector<output_tensor> tensors, const save_options& options)
      : tensors_(std::move(tensors)), options_(options) {}

  result<save_report> run(const std::filesystem::path& destination, std::span<const output_object> objects,
                          element_source source, const file_options& format) {
    SHARDMESH_TRY(plan_, plan_file(tensors_, objects, format));
    SHARDMESH_TRY(staged_output output, staged_output::file(destination, options_.output()));
    SHARDMESH_TRY(output.reserve(plan_.size_bytes));
    SHARDMESH_TRY(const std::int32_t file, output.add_file(""));
    SHARDMESH_TRY(output.write(file, 0, std::as_bytes(std::span(plan_.description))));
    SHARDMESH_TRY(write_tensors(output, file, source));
    SHARDMESH_TRY(write_last_padding(output, file));
    SHARDMESH_TRY(output.prepare());
    SHARDMESH_TRY(ask_before_commit(options_));
    SHARDMESH_TRY(output.commit());
    save_report report;
    report.notes = std::move(plan_.notes);
    if (auto note = torch_file::note_of_python_keys(tensors_, objects, "text in names of the GGUF file",
                                                    [](const path_key&) { return true; }))
      report.notes.push_back(*std::move(note));
    report.notes.insert(report.notes.end(), output.notes().begin(), output.notes().end());
    report.files = 1;
    report.tensors = static_cast<std::int64_t>(tensors_.size());
    report.objects = static_cast<std::int64_t>(objects.size());
    for (const planned_tensor& tensor : plan_.tensors) report.bytes += tensor.length;
    return report;
  }

 private:
  result<void> write_tensors(staged_output& output, std::int32_t file, element_source source) {
    std::vector<torch_file::written_item> items;
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys, moved_keys;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const planned_tensor& planned = plan_.tensors[i];
      output_tensor& tensor = tensors_[i];
      items.push_back({file, planned.begin, planned.begin, planned.length, false, dtype::undefined, {}});
      keys.push_back(tensor.key);
      if (planned.copied != nullptr) continue;
      SHARDMESH_TRY(tensor.bytes.to, whole_item(tensor.bytes.from.global_shape(), static_cast<std::int32_t>(i)));
      tensor.bytes.to_type = planned.is_quantized() ? dtype::float32 : tensor.type;
      transfers.push_back(tensor.bytes);
      moved_keys.push_back(tensor.key);
    }
    torch_file::item_writer writer(output, std::move(items), source);
    block_sink sink(writer, plan_, keys);
    SHARDMESH_TRY(writer.write_empty_items());
    SHARDMESH_TRY(write_items(transfers, moved_keys, source, sink, run_options_of(options_)));
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (plan_.tensors[i].copied != nullptr) SHARDMESH_TRY(copy_blocks(writer, i));
    return writer.check_complete();
  }

  result<void> copy_blocks(torch_file::item_writer& writer, std::size_t i) {
    const stored_blocks& blocks = *plan_.tensors[i].copied;
    std::vector<std::byte> piece;
    for (std::int64_t at = 0; at < blocks.length; at += static_cast<std::int64_t>(piece.size())) {
      if (options_.cancel.stop_requested())
        return fail(errc::cancelled, "the save was cancelled").with_key(tensors_[i].key);
      piece.resize(static_cast<std::size_t>(std::min(copied_at_once, blocks.length - at)));
      auto read = blocks.file->read(blocks.begin + at, piece);
      if (!read) return std::move(read).error().with_key(tensors_[i].key);
      SHARDMESH_TRY(writer.write({0, static_cast<std::int32_t>(i)}, at, piece));
      if (options_.progress) options_.progress(static_cast<std::int64_t>(piece.size()));
    }
    return {};
  }

  // Readers of ggml also expect the padding of the last tensor. Padding before it is a hole of zeros.
  result<void> write_last_padding(staged_output& output, std::int32_t file) {
    if (plan_.tensors.empty()) return {};
    const planned_tensor& last = plan_.tensors.back();
    if (last.begin + last.length == plan_.size_bytes) return {};
    constexpr std::array<std::byte, 1> zero{};
    return output.write(file, plan_.size_bytes - 1, zero);
  }

  std::vector<output_tensor> tensors_;
  const save_options& options_;
  file_plan plan_;
};

}  // namespace

result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const file_options& format,
                         const save_options& options) {
  const detail::call_scope limits(options.call().named("save"));
  return gguf_save(std::move(tensors), options).run(destination, objects, source, format);
}

}  // namespace shardmesh::gguf
