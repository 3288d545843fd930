// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

class safetensors_save {
 public:
  safetensors_save(std::vector<output_tensor> tensors, std::span<const output_object> objects,
                   const file_options& format, const save_options& options)
      : tensors_(std::move(tensors)), objects_(objects), format_(format), options_(options) {}

  result<save_report> run(const std::filesystem::path& destination, element_source source) {
    std::vector<std::size_t> plain = all_indices();
    std::erase_if(plain, [&](std::size_t i) { return static_cast<bool>(tensors_[i].archive); });
    std::vector<error> problems = problems_of(described(plain));
    for (error& problem : problems_of_names(objects_)) problems.push_back(std::move(problem));
    for (const output_tensor& tensor : tensors_)
      if (tensor.archive)
        problems.push_back(
            fail(errc::unsupported, "a tensor of an unknown representation cannot be written as safetensors")
                .with_key(tensor.key));
    if (!problems.empty()) return fail_all(std::move(problems));
    SHARDMESH_TRY(write(destination, source));
    return std::move(report_);
  }

 private:
  std::vector<std::size_t> all_indices() const {
    std::vector<std::size_t> all(tensors_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  std::vector<tensor> described(const std::vector<std::size_t>& which) const {
    std::vector<tensor> entries;
    for (const std::size_t i : which)
      entries.push_back({tensors_[i].key, tensors_[i].type, tensors_[i].bytes.from.global_shape()});
    return entries;
  }

  // Returns the texts of each file, from the source files of its tensors. The first file also takes the texts of source
  // files without tensors.
  std::vector<planned_files::texts> carried_texts() {
    const std::span<const planned_file> files = plan_.files();
    std::vector<planned_files::texts> texts(files.size());
    if (format_.carried == nullptr) return texts;
    std::vector<std::set<std::int32_t>> contributors(files.size());
    std::set<std::int32_t> used;
    for (std::size_t f = 0; f < files.size(); ++f)
      for (const std::size_t i : files[f].tensors)
        tensors_[i].bytes.from.for_each_owner([&](owner_id file) {
          contributors[f].insert(file);
          used.insert(file);
        });
    for (const file_text& text : format_.carried->texts)
      if (!used.contains(text.file)) contributors.front().insert(text.file);
    text_merge merge(*format_.carried);
    for (std::size_t f = 0; f < files.size(); ++f) texts[f] = merge.of(contributors[f]);
    report_.notes = merge.notes();
    return texts;
  }

  result<void> write(const std::filesystem::path& destination, element_source source) {
    if (!objects_.empty()) {
      SHARDMESH_TRY(objects_text_, format_objects(objects_, tensors_));
    }
    SHARDMESH_TRY(plan_, planned_files::make(described(all_indices()), format_));
    SHARDMESH_TRY(plan_.lay_out(carried_texts(), objects_text_, destination));
    SHARDMESH_TRY(const auto incomplete, objects_not_held_whole(objects_));
    // Without objects, no document can hold Python keys.
    if (auto note = torch_file::note_of_python_keys(
            tensors_, objects_, "text in names of safetensors",
            [&](const path_key& key) { return objects_.empty() || !torch_file::json_of_key(key); }))
      report_.notes.push_back(*std::move(note));
    report_.notes.insert(report_.notes.begin(), incomplete.begin(), incomplete.end());
    std::optional<objects_copy> beside;
    if (!format_.folder) {
      SHARDMESH_TRY(beside, objects_copy::look(destination, objects_text_, options_.output()));
    }
    SHARDMESH_TRY(staged_output output, format_.folder ? staged_output::directory(destination, options_.output())
                                                       : staged_output::file(destination, options_.output()));
    SHARDMESH_TRY(output.reserve(planned_bytes()));
    if (beside) SHARDMESH_TRY(beside->stage());
    SHARDMESH_TRY(write_tensors(output, source));
    if (format_.folder) SHARDMESH_TRY(plan_.finish_folder(output, objects_text_, format_.side_files));
    if (beside) SHARDMESH_TRY(beside->prepare());
    SHARDMESH_TRY(output.prepare());
    SHARDMESH_TRY(ask_before_commit(options_));
    SHARDMESH_TRY(output.commit());
    report_.notes.insert(report_.notes.end(), output.notes().begin(), output.notes().end());
    if (beside) SHARDMESH_TRY(beside->commit(report_.notes));
    report_.files = static_cast<std::int64_t>(plan_.files().size());
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    report_.bytes = plan_.data_bytes();
    return {};
  }

  result<void> write_tensors(staged_output& output, element_source source) {
    std::vector<torch_file::written_item> items(tensors_.size());
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    SHARDMESH_TRY(plan_.add_to(output));
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      output_tensor& tensor = tensors_[i];
      const tensor_place at = plan_.place_of(i);
      const auto file = static_cast<std::int32_t>(at.file);
      SHARDMESH_TRY(tensor.bytes.to, whole_item(tensor.bytes.from.global_shape(), file, static_cast<std::int32_t>(i)));
      tensor.bytes.to_type = tensor.type;
      transfers.push_back(tensor.bytes);
      keys.push_back(tensor.key);
      items[i] = {file, at.begin, at.begin, plan_.bytes_of(i), false, tensor.type, {}};
    }
    torch_file::item_writer writer(output, std::move(items), source);
    SHARDMESH_TRY(writer.write_empty_items());
    SHARDMESH_TRY(write_items(transfers, keys, source, writer, run_options_of(options_)));
    SHARDMESH_TRY(writer.check_complete());
    std::vector<digest128> sums;
    for (std::size_t i = 0; i < tensors_.size(); ++i) sums.push_back(writer.digest(i));
    return plan_.write_headers(output, sums);
  }

  static result<distribution> whole_item(const extents& shape, std::int32_t file, std::int32_t slot) {
    const fragment whole{box::whole(shape), file, slot, extents::filled(shape.rank(), 0), 0};
    return distribution::from_fragments(shape, {&whole, 1}, owner_space::items);
  }

  std::int64_t planned_bytes() const {
    return checked_add(plan_.file_bytes(), static_cast<std::int64_t>(objects_text_.size()))
        .value_or(std::numeric_limits<std::int64_t>::max());
  }

  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const file_options& format_;
  const save_options& options_;
  save_report report_;
  planned_files plan_;
  std::string objects_text_;
};

}  // namespace

result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const file_options& format,
                         const save_options& options) {
  const detail::call_scope limits(options.call().named("save"));
  return safetensors_save(std::move(tensors), objects, format, options).run(destination, source);
}

}  // namespace shardmesh::safetensors
