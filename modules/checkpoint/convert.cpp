// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :entry_check;
import :merge_tensors;
import :recorded_sums;

namespace shardmesh {
namespace {

// What safetensors cannot hold; the writer refuses whatever is left of it.
bool is_unsupported(const output_tensor& tensor) {
  const safetensors_tensor entry{tensor.key, tensor.type, tensor.bytes.from.global_shape()};
  return tensor.archive || !safetensors_problems({&entry, 1}).empty();
}

void split_at_dots(path& where, std::string_view key) {
  where = {};
  for (std::size_t begin = 0;;) {
    const std::size_t dot = key.find('.', begin);
    where.push_back(std::string(key.substr(begin, dot - begin)));
    if (dot == std::string_view::npos) return;
    begin = dot + 1;
  }
}

}  // namespace

save_report convert(checkpoint_reader& reader, const std::filesystem::path& destination,
                    const convert_options& options) {
  if (auto apart = check_not_inside(destination, reader.path()); !apart) return failed(std::move(apart).take_error());
  const bool to_dcp = options.to == target_format::dcp;
  conversion work = select_for_output(reader, options.selection);
  if (!work.problems.empty()) return refused(std::move(work.problems));
  auto record = recorded_sums::open(reader);
  if (!record) return failed(std::move(record).take_error());
  chunk_source source = chunk_source::checking(reader, *record);
  if (auto merged = merge_tensors(reader, work, options.merge, source, options.saving.threads); !merged)
    return failed(std::move(merged).take_error());
  std::int64_t skipped_tensors = 0, skipped_objects = 0;
  if (to_dcp && options.nest) {
    for (output_tensor& tensor : work.tensors) split_at_dots(tensor.where, tensor.key);
    for (output_object& object : work.objects) split_at_dots(object.where, object.key);
  }
  if (!to_dcp && options.skip_unsupported)
    skipped_tensors = drop_tensors(work, [](const auto& tensor) { return is_unsupported(tensor); });
  if (!to_dcp && options.skip_objects) skipped_objects = drop_objects(work, [](const auto&) { return true; });
  std::vector<error> problems;
  if (to_dcp) problems = find_path_conflicts(work.tensors, work.objects);
  if (problems.empty()) problems = check_before_copying(reader, work, record->get(), options.saving.threads);
  if (!problems.empty()) return refused(std::move(problems));
  save_report report;
  if (to_dcp) {
    report = save_dcp(destination, std::move(work.tensors), work.objects, source, reader.extras(), options.saving);
  } else {
    auto incomplete = objects_not_held_whole(work.objects);
    if (!incomplete) return failed(std::move(incomplete).take_error());
    work.notes.insert(work.notes.end(), incomplete->begin(), incomplete->end());
    const safetensors_options format{options.to == target_format::hf, options.max_shard_bytes};
    report = save_safetensors(destination, std::move(work.tensors), work.objects, source, format, options.saving);
  }
  report.skipped_tensors = skipped_tensors;
  report.skipped_objects = skipped_objects;
  report.excluded = work.excluded;
  report.notes.insert(report.notes.begin(), work.notes.begin(), work.notes.end());
  return report;
}

}  // namespace shardmesh
