// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

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

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// One .safetensors file of the destination.
struct planned_file {
  std::string name;
  std::vector<std::size_t> tensors;  // indices, in the order of the layout's `begins`
  file_layout layout;
  std::size_t first_item = 0;
};

class safetensors_save {
 public:
  safetensors_save(std::vector<output_tensor> tensors, std::span<const output_object> objects,
                   const file_options& format, const save_options& options)
      : tensors_(std::move(tensors)), objects_(objects), format_(format), options_(options) {}

  save_report run(const std::filesystem::path& destination, any_item_source source) {
    std::vector<std::size_t> plain = all_indices();
    std::erase_if(plain, [&](std::size_t i) { return static_cast<bool>(tensors_[i].archive); });
    report_.problems = problems_of(described(plain));
    for (const output_object& object : objects_)
      // A name inside the nested path counts too: our own reader would not take the document back.
      if (!is_utf8(object.key) || !std::all_of(object.where.begin(), object.where.end(), [](const path_key& step) {
            return step.is_index() || is_utf8(step.name());
          }))
        report_.problems.push_back(
            fail(errc::unsupported, "an object's name that is not UTF-8 cannot be written to objects.json")
                .with_key(object.key)
                .with_hint("rename it, or skip_objects"));
    for (const output_tensor& tensor : tensors_)
      if (tensor.archive)
        report_.problems.push_back(
            fail(errc::unsupported, "a tensor of an unknown representation cannot be written as safetensors")
                .with_key(tensor.key));
    if (!report_.ok()) return std::move(report_);
    auto done = write(destination, source);
    if (!done) report_.problems.push_back(std::move(done).error());
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

  std::int64_t bytes_of_tensor(std::size_t i) const {
    return size_bytes(tensors_[i].type, box::whole(tensors_[i].bytes.from.global_shape()).volume()).value_or(0);
  }

  result<void> plan_files(const std::filesystem::path& destination) {
    if (!format_.folder) {
      files_.push_back({"", all_indices(), {}, 0});
    } else {
      std::vector<std::int64_t> sizes;
      for (std::size_t i = 0; i < tensors_.size(); ++i) sizes.push_back(bytes_of_tensor(i));
      SHARDMESH_TRY(shards_, plan_hf_shards(sizes, format_.max_shard_bytes, format_.stem));
      for (const std::string& name : shards_.file_names) files_.push_back({name, {}, {}, 0});
      for (std::size_t i = 0; i < tensors_.size(); ++i) files_[shards_.file_of[i]].tensors.push_back(i);
    }
    std::vector<std::vector<std::pair<std::string, std::string>>> texts = carried_texts();
    for (std::size_t f = 0; f < files_.size(); ++f) {
      planned_file& file = files_[f];
      auto metadata = std::move(texts[f]);
      if (std::none_of(metadata.begin(), metadata.end(), [](const auto& text) { return text.first == "format"; }))
        metadata.insert(metadata.begin(), {"format", "pt"});
      metadata.emplace_back(checksum_key, checksum_placeholder(file.tensors.size()));
      if (!format_.folder && !objects_text_.empty()) metadata.emplace_back(embedded_objects_key, objects_text_);
      auto layout = layout_file(described(file.tensors), metadata);
      if (!layout) return std::move(layout).error().with_file((destination / file.name).string());
      file.layout = std::move(*layout);
    }
    return {};
  }

  // Per file: what the source's files say that gave it tensors. The first takes what files without tensors say, too.
  std::vector<std::vector<std::pair<std::string, std::string>>> carried_texts() {
    std::vector<std::vector<std::pair<std::string, std::string>>> texts(files_.size());
    if (format_.carried == nullptr) return texts;
    std::vector<std::set<std::int32_t>> contributors(files_.size());
    std::set<std::int32_t> used;
    for (std::size_t f = 0; f < files_.size(); ++f)
      for (const std::size_t i : files_[f].tensors)
        tensors_[i].bytes.from.for_each_owner([&](owner_id file) {
          contributors[f].insert(file);
          used.insert(file);
        });
    for (const file_text& text : format_.carried->texts)
      if (!used.contains(text.file)) contributors.front().insert(text.file);
    text_merge merge(*format_.carried);
    for (std::size_t f = 0; f < files_.size(); ++f) texts[f] = merge.of(contributors[f]);
    report_.notes = merge.notes();
    return texts;
  }

  result<void> write(const std::filesystem::path& destination, any_item_source source) {
    if (!objects_.empty()) {
      SHARDMESH_TRY(objects_text_, format_objects(objects_));
    }
    SHARDMESH_CHECK(plan_files(destination));
    if (!format_.folder) SHARDMESH_CHECK(look_beside(destination));
    SHARDMESH_TRY(staged_output output, format_.folder ? staged_output::directory(destination, options_.output)
                                                       : staged_output::file(destination, options_.output));
    SHARDMESH_CHECK(output.reserve(planned_bytes()));
    // The copy beside a single file is made durable before and renamed after the file that holds the objects as well.
    std::optional<staged_output> beside;
    if (!format_.folder && !objects_.empty()) {
      SHARDMESH_TRY(beside, staged_output::file(objects_beside(destination), options_.output));
    }
    SHARDMESH_CHECK(write_tensors(output, source));
    if (!objects_.empty())
      SHARDMESH_CHECK(add_text(beside ? *beside : output, format_.folder ? "objects.json" : "", objects_text_));
    if (format_.folder) SHARDMESH_CHECK(write_folder_files(output));
    if (beside) SHARDMESH_CHECK(beside->prepare());
    if (options_.call.cancel.stop_requested()) return fail(errc::cancelled, "the save was cancelled");
    SHARDMESH_CHECK(output.commit());
    report_.notes.insert(report_.notes.end(), output.notes().begin(), output.notes().end());
    if (beside) {
      auto placed = beside->commit();
      if (!placed)
        return std::move(placed).error().with_hint("the file itself was written, with the objects in its header");
      report_.notes.insert(report_.notes.end(), beside->notes().begin(), beside->notes().end());
    } else if (!format_.folder) {
      remove_stale_objects(destination);
    }
    report_.files = static_cast<std::int64_t>(files_.size());
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) report_.bytes += bytes_of_tensor(i);
    return {};
  }

  result<void> write_tensors(staged_output& output, any_item_source source) {
    std::vector<torch_file::written_item> items;
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    for (planned_file& file : files_) {
      SHARDMESH_TRY(const std::int32_t number, output.add_file(file.name));
      file.first_item = items.size();
      for (std::size_t k = 0; k < file.tensors.size(); ++k) {
        output_tensor& tensor = tensors_[file.tensors[k]];
        SHARDMESH_TRY(tensor.bytes.to,
                      whole_item(tensor.bytes.from.global_shape(), number, static_cast<std::int32_t>(items.size())));
        tensor.bytes.to_type = tensor.type;
        transfers.push_back(tensor.bytes);
        keys.push_back(tensor.key);
        const std::int64_t begin = file.layout.begins[k];
        items.push_back({number, begin, begin, bytes_of_tensor(file.tensors[k]), false, tensor.type, {}});
      }
    }
    torch_file::item_writer writer(output, std::move(items));
    SHARDMESH_CHECK(writer.write_empty_items());
    SHARDMESH_CHECK(run_to_items(transfers, keys, source, writer, run_options_of(options_)));
    SHARDMESH_CHECK(writer.check_complete());
    for (std::size_t f = 0; f < files_.size(); ++f)
      SHARDMESH_CHECK(write_header(output, static_cast<std::int32_t>(f), files_[f], writer));
    return {};
  }

  static result<distribution> whole_item(const extents& shape, std::int32_t file, std::int32_t slot) {
    const fragment whole{box::whole(shape), file, slot, extents::filled(shape.rank(), 0), 0};
    return distribution::from_fragments(shape, {&whole, 1}, owner_space::items);
  }

  result<void> write_header(staged_output& output, std::int32_t number, planned_file& file,
                            const torch_file::item_writer& writer) {
    std::vector<digest128> digests;
    for (const std::size_t k : file.layout.order) digests.push_back(writer.digest(file.first_item + k));
    SHARDMESH_CHECK(patch_checksums(file.layout.header, digests));
    SHARDMESH_CHECK(output.write(number, 0, bytes_of(file.layout.header)));
    if (!format_.folder) return {};
    ranges_.push_back({file.name, 0, static_cast<std::int64_t>(file.layout.header.size()),
                       to_hex(xxh3(bytes_of(file.layout.header)))});
    for (const std::size_t k : file.layout.order) {
      const torch_file::written_item& item = writer.items()[file.first_item + k];
      ranges_.push_back({file.name, item.begin, item.size_bytes, to_hex(writer.digest(file.first_item + k))});
    }
    return {};
  }

  std::int64_t planned_bytes() const {
    auto total = static_cast<std::int64_t>(objects_text_.size());
    for (const planned_file& file : files_)
      total = checked_add(total, file.layout.size_bytes).value_or(std::numeric_limits<std::int64_t>::max());
    return total;
  }

  // An overwrite replaces or removes the copy of the objects of the file that it replaces, and nothing else that has
  // its name.
  result<void> look_beside(const std::filesystem::path& destination) {
    if (!options_.output.overwrite) return {};
    const std::filesystem::path beside = objects_beside(destination);
    SHARDMESH_TRY(old_objects_, look_at(beside));
    if (!old_objects_.self) return {};
    const bool is_copy = old_objects_.is_file() && is_objects_file(beside);
    if (!is_copy && !objects_.empty())
      return fail(errc::destination_exists, "is not a file of objects that shardmesh wrote, and is not replaced")
          .with_file(beside.string());
    if (!is_copy) old_objects_ = {};
    return {};
  }

  // The copy that belonged to a file which was just replaced by one without objects.
  void remove_stale_objects(const std::filesystem::path& destination) const {
    const std::filesystem::path stale = objects_beside(destination);
    const auto now = look_at(stale);
    if (!old_objects_.self || !now || change_between(old_objects_, *now, false)) return;
    std::error_code ignored;
    std::filesystem::remove(stale, ignored);
  }

  result<void> write_folder_files(staged_output& output) {
    if (shards_.needs_index()) {
      std::vector<std::pair<std::string, std::string>> weight_map;
      for (std::size_t i = 0; i < tensors_.size(); ++i)
        weight_map.emplace_back(tensors_[i].key, shards_.file_names[shards_.file_of[i]]);
      SHARDMESH_CHECK(add_text(output, hf_index_name_of(format_.stem), write_hf_index(shards_.total_size, weight_map)));
    }
    SHARDMESH_CHECK(copy_side_files(output, format_.side_files, ranges_));
    const std::string record = format_checksums(ranges_);
    SHARDMESH_TRY(const std::int32_t number, output.add_file(checksum_file_name));
    return output.write(number, 0, bytes_of(record));
  }

  result<void> add_text(staged_output& output, const std::string& name, const std::string& text) {
    SHARDMESH_TRY(const std::int32_t number, output.add_file(name));
    ranges_.push_back({name, 0, static_cast<std::int64_t>(text.size()), to_hex(xxh3(bytes_of(text)))});
    return output.write(number, 0, bytes_of(text));
  }

  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const file_options& format_;
  const save_options& options_;
  save_report report_;
  std::vector<planned_file> files_;
  hf_shard_plan shards_;
  std::string objects_text_;
  seen_destination old_objects_;  // the copy beside a single file that an overwrite found
  std::vector<checksum_range> ranges_;
};

}  // namespace

save_report save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                 std::span<const output_object> objects, any_item_source source, const file_options& format,
                 const save_options& options) {
  return safetensors_save(std::move(tensors), objects, format, options).run(destination, source);
}

}  // namespace shardmesh::safetensors
