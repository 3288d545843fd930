// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.npz;

import shardmesh.storage;
import shardmesh.torch_file;
import shardmesh.transfer;
import :archive_layout;
import :member_crc;

namespace shardmesh::npz {
namespace {

constexpr std::size_t max_name_bytes = 65535;  // of a record, in a ZIP archive

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

result<distribution> whole_item(const extents& shape, std::int32_t slot) {
  const fragment whole{box::whole(shape), 0, slot, extents::filled(shape.rank(), 0), 0};
  return distribution::from_fragments(shape, {&whole, 1}, owner_space::items);
}

class npz_save {
 public:
  npz_save(std::vector<output_tensor> tensors, std::span<const output_object> objects, const save_options& options)
      : tensors_(std::move(tensors)), objects_(objects), options_(options) {}

  result<save_report> run(const std::filesystem::path& destination, element_source source) {
    if (std::vector<error> problems = find_problems(); !problems.empty()) return fail_all(std::move(problems));
    SHARDMESH_TRY(describe_objects());
    SHARDMESH_TRY(lay_out());
    SHARDMESH_TRY(staged_output output, staged_output::file(destination, options_.output()));
    SHARDMESH_TRY(output.reserve(planned_bytes()));
    SHARDMESH_TRY(const std::int32_t file, output.add_file(""));
    SHARDMESH_TRY(write(output, file, source));
    SHARDMESH_TRY(output.prepare());
    SHARDMESH_TRY(ask_before_commit(options_));
    SHARDMESH_TRY(output.commit());
    report_.notes.insert(report_.notes.end(), output.notes().begin(), output.notes().end());
    report_.files = 1;
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    return std::move(report_);
  }

 private:
  const extents& shape_of(std::size_t i) const { return tensors_[i].bytes.from.global_shape(); }

  std::vector<error> find_problems() const {
    std::vector<error> problems;
    std::unordered_set<std::string_view> keys;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const output_tensor& tensor = tensors_[i];
      if (!keys.insert(tensor.key).second)
        problems.push_back(fail(errc::duplicate_key, "is given twice").with_key(tensor.key));
      if (tensor.archive)
        problems.push_back(
            fail(errc::unsupported, "a tensor of an unknown representation cannot be written as an array of NumPy")
                .with_key(tensor.key));
      else if (auto problem = problem_of(tensor.key, tensor.type, shape_of(i)))
        problems.push_back(*std::move(problem));
    }
    for (const output_tensor& tensor : tensors_) {
      std::string_view key = tensor.key;
      if (!key.ends_with(array_ending)) continue;
      key.remove_suffix(array_ending.size());
      if (keys.contains(key))
        problems.push_back(fail(errc::duplicate_key, fmt::format("numpy.load cannot tell it from {}", escaped(key)))
                               .with_key(tensor.key)
                               .with_hint("rename one of them"));
    }
    for (error& problem : safetensors::problems_of_names(objects_)) problems.push_back(std::move(problem));
    return problems;
  }

  result<void> describe_objects() {
    // Without objects, no document can hold Python keys.
    if (auto note = torch_file::note_of_python_keys(
            tensors_, objects_, "text in names of NumPy arrays",
            [&](const path_key& key) { return objects_.empty() || !torch_file::json_of_key(key); }))
      report_.notes.push_back(*std::move(note));
    // Without any record, only the suffix would show what the archive is.
    if (objects_.empty() && !tensors_.empty()) return {};
    SHARDMESH_TRY(document_, safetensors::format_objects(objects_, tensors_));
    SHARDMESH_TRY(const auto incomplete, safetensors::objects_not_held_whole(objects_));
    report_.notes.insert(report_.notes.begin(), incomplete.begin(), incomplete.end());
    return {};
  }

  result<void> lay_out() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const output_tensor& tensor = tensors_[i];
      headers_.push_back(format_array_header(tensor.type, shape_of(i)));
      const auto elements = checked_volume(shape_of(i));
      const auto bytes = elements ? size_bytes(tensor.type, *elements) : std::nullopt;
      const auto all = bytes ? checked_add(*bytes, static_cast<std::int64_t>(headers_.back().size())) : std::nullopt;
      if (!all) return fail(errc::overflow, "its size does not fit in 64 bits").with_key(tensor.key);
      report_.bytes += *bytes;
      auto added = layout_.add(tensor.key + std::string(array_ending), *all);
      if (!added) return std::move(added).error().with_key(tensor.key);
    }
    if (document_.empty()) return {};
    return layout_.add(std::string(objects_record), static_cast<std::int64_t>(document_.size()));
  }

  std::int64_t planned_bytes() const {
    const std::vector<std::uint32_t> none(layout_.records().size());
    const auto directory_bytes = static_cast<std::int64_t>(layout_.directory(none).size());
    return checked_add(layout_.data_end(), directory_bytes).value_or(std::numeric_limits<std::int64_t>::max());
  }

  result<void> write(staged_output& output, std::int32_t file, element_source source) {
    SHARDMESH_TRY(std::vector<std::uint32_t> sums, write_elements(output, file, source));
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::int64_t element_bytes =
          layout_.records()[i].size_bytes - static_cast<std::int64_t>(headers_[i].size());
      sums[i] = joined_crc32(crc32_of(bytes_of(headers_[i])), sums[i], element_bytes);
      SHARDMESH_TRY(write_head(output, file, i, sums[i], headers_[i]));
    }
    if (!document_.empty()) {
      sums.push_back(crc32_of(bytes_of(document_)));
      SHARDMESH_TRY(write_head(output, file, tensors_.size(), sums.back(), document_));
    }
    return output.write(file, layout_.data_end(), bytes_of(layout_.directory(sums)));
  }

  // Writes a record's local header, and the bytes directly behind it.
  result<void> write_head(staged_output& output, std::int32_t file, std::size_t record, std::uint32_t sum,
                          const std::string& first) const {
    const std::string head = layout_.local_header(record, sum) + first;
    return output.write(file, layout_.records()[record].begin, bytes_of(head));
  }

  // Returns the CRC-32 of each tensor's elements.
  result<std::vector<std::uint32_t>> write_elements(staged_output& output, std::int32_t file, element_source source) {
    std::vector<torch_file::written_item> items;
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      output_tensor& tensor = tensors_[i];
      const placed_record& record = layout_.records()[i];
      const auto header_bytes = static_cast<std::int64_t>(headers_[i].size());
      const std::int64_t begin = record.data_begin + header_bytes;
      items.push_back({file, begin, begin, record.size_bytes - header_bytes, false, dtype::undefined, {}, true});
      SHARDMESH_TRY(tensor.bytes.to, whole_item(shape_of(i), static_cast<std::int32_t>(i)));
      tensor.bytes.to_type = tensor.type;
      transfers.push_back(tensor.bytes);
      keys.push_back(tensor.key);
    }
    torch_file::item_writer writer(output, std::move(items), source);
    SHARDMESH_TRY(writer.write_empty_items());
    SHARDMESH_TRY(write_items(transfers, keys, source, writer, run_options_of(options_)));
    SHARDMESH_TRY(writer.check_complete());
    std::vector<std::uint32_t> sums;
    for (std::size_t i = 0; i < tensors_.size(); ++i) sums.push_back(writer.crc32(i));
    return sums;
  }

  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const save_options& options_;
  save_report report_;
  std::string document_;              // of the objects; empty: the archive has no such record
  std::vector<std::string> headers_;  // one per tensor
  archive_layout layout_;
};

}  // namespace

std::optional<error> problem_of(std::string_view key, dtype type, const extents&) {
  const auto refuse = [&](std::string message) { return fail(errc::unsupported, std::move(message)).with_key(key); };
  if (!is_utf8(key)) return refuse("the name is not UTF-8, which an .npz archive needs");
  if (key.find('\0') != key.npos) return refuse("the name contains a NUL").with_hint("rename the tensor");
  if (key.size() + array_ending.size() > max_name_bytes)
    return refuse("the name is too long for an .npz archive")
        .with_values(fmt::format("at most {} bytes", max_name_bytes - array_ending.size()),
                     fmt::format("{}", key.size()))
        .with_hint("rename the tensor");
  if (!descr_of(type).empty()) return std::nullopt;
  // A type without a pattern casts no floats below 16 bits: they usually have scales.
  const char* const cast = bits(type) >= 16 ? "pass dtype float32 to cast it, or leave it out"
                                            : "pass dtype '.*=float32' to cast it, or leave it out";
  return refuse(fmt::format("NumPy has no {}", name(type))).with_hint(is_floating(type) ? cast : "leave it out");
}

result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const save_options& options) {
  const detail::call_scope limits(options.call().named("save"));
  return npz_save(std::move(tensors), objects, options).run(destination, source);
}

}  // namespace shardmesh::npz
