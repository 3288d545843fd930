// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :carried;
import :split_reader;

namespace shardmesh {
namespace {

// Digest of a tensor's elements in row-major order, read slab by slab.
result<digest128> content_digest(checkpoint_reader& reader, const tensor_entry& tensor) {
  SHARDMESH_TRY(const distribution held, reader.contents().distribution_of(tensor));
  chunk_source source(reader);
  xxh3_stream sum;
  slab_walk walk(box::whole(tensor.shape), (std::int64_t{4} << 20) / item_bytes(tensor.type));
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(const host_tensor values, host_tensor::make(tensor.type, slab->sizes));
    const memory_target target{0, *slab, adapter<host_tensor>::view(values)};
    SHARDMESH_CHECK(run_to_memory({&held, 1}, {&tensor.key, 1}, {&target, 1}, source));
    sum.update(values.bytes());
  }
  return sum.digest();
}

// Drops every tensor whose dtype, shape and bytes are those of an earlier one. Scalars and optimizer state are kept:
// equal step counters are not tied weights.
result<void> drop_equal_tensors(checkpoint_reader& reader, conversion& work) {
  using shape_of = std::pair<dtype, extents>;
  std::map<shape_of, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    const output_tensor& tensor = work.tensors[i];
    if (tensor.archive || is_optimizer_key(tensor.key) || box::whole(tensor.bytes.from.global_shape()).volume() < 2)
      continue;
    if (bits(tensor.bytes.from_type) % 8 == 0) alike[{tensor.type, tensor.bytes.from.global_shape()}].push_back(i);
  }
  std::vector<bool> dropped(work.tensors.size());
  for (const auto& [shape, members] : alike) {
    if (members.size() < 2) continue;
    std::map<digest128, std::size_t> first;
    for (const std::size_t i : members) {
      SHARDMESH_TRY(const digest128 digest, content_digest(reader, reader.contents().tensors[work.sources[i]]));
      const auto [kept, is_new] = first.try_emplace(digest, i);
      if (is_new) continue;
      dropped[i] = true;
      work.notes.push_back(fmt::format("{} has the bytes of {} and is written once", work.tensors[i].key,
                                       work.tensors[kept->second].key));
    }
  }
  std::vector<output_tensor> kept;
  for (std::size_t i = 0; i < work.tensors.size(); ++i)
    if (!dropped[i]) kept.push_back(std::move(work.tensors[i]));
  work.tensors = std::move(kept);
  return {};
}

// Opaque tensors have an archive of their own in DCP; other formats have no place for it.
void refuse_archives(const checkpoint_reader& reader, conversion& work) {
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    if (!work.tensors[i].archive) continue;
    const tensor_entry& stored = reader.contents().tensors[work.sources[i]];
    work.problems.push_back(
        fail(errc::unsupported, fmt::format("a {} cannot be written as safetensors", stored.opaque_kind))
            .with_key(stored.key)
            .with_file(reader.path().string())
            .with_values("", stored.opaque_type)
            .with_hint("skip_unsupported leaves it out"));
  }
}

// Leaves out what safetensors cannot hold; the writer refuses whatever is left of it.
std::int64_t drop_unsupported(std::vector<output_tensor>& tensors) {
  const auto unsupported = [](const output_tensor& tensor) {
    const safetensors_tensor entry{tensor.key, tensor.type, tensor.bytes.from.global_shape()};
    return tensor.archive || !safetensors_problems({&entry, 1}).empty();
  };
  return static_cast<std::int64_t>(std::erase_if(tensors, unsupported));
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

save_report convert(checkpoint_reader& given, const std::filesystem::path& destination,
                    const convert_options& options) {
  if (auto apart = check_apart(destination, given); !apart) return failed(std::move(apart).take_error());
  // DCP holds objects with tensors inside as they are; elsewhere their tensors are entries.
  std::unique_ptr<checkpoint_reader> split;
  if (options.to != target_format::dcp) {
    auto made = split_objects(given);
    if (!made) return failed(std::move(made).take_error());
    split = *std::move(made);
  }
  checkpoint_reader& reader = split ? *split : given;
  conversion work = select_for_output(reader, options.selection);
  save_report skipped;
  settle_unsupported(work, options.skip_unsupported, skipped);
  if (options.to != target_format::dcp && !options.skip_unsupported) refuse_archives(reader, work);
  if (!work.problems.empty()) {
    save_report report;
    report.problems = std::move(work.problems);
    return report;
  }
  if (options.dedup)
    if (auto done = drop_equal_tensors(reader, work); !done) return failed(std::move(done).take_error());
  std::int64_t skipped_tensors = skipped.skipped_tensors, skipped_objects = skipped.skipped_objects;
  chunk_source source(reader, {}, true);
  save_report report;
  if (options.to == target_format::dcp) {
    if (options.nest) {
      for (output_tensor& tensor : work.tensors) split_at_dots(tensor.where, tensor.key);
      for (output_object& object : work.objects) split_at_dots(object.where, object.key);
    }
    const auto extras = carried_to_dcp(reader, work.tensors, work.objects, work.notes);
    if (!extras) return failed(extras.cause());
    report = save_dcp(destination, std::move(work.tensors), work.objects, source, *extras, options.saving);
  } else {
    if (options.skip_unsupported) skipped_tensors += drop_unsupported(work.tensors);
    if (options.skip_objects) skipped_objects += static_cast<std::int64_t>(std::exchange(work.objects, {}).size());
    auto incomplete = objects_not_held_whole(work.objects);
    if (!incomplete) return failed(std::move(incomplete).take_error());
    work.notes.insert(work.notes.end(), incomplete->begin(), incomplete->end());
    auto format = carried_to_safetensors(reader, options.to == target_format::hf, work.notes);
    if (!format) return failed(std::move(format).take_error());
    format->max_shard_bytes = options.max_shard_bytes;
    report = save_safetensors(destination, std::move(work.tensors), work.objects, source, *format, options.saving);
  }
  report.skipped_tensors = skipped_tensors;
  report.skipped_objects = skipped_objects;
  report.excluded = work.excluded;
  report.notes.insert(report.notes.begin(), work.notes.begin(), work.notes.end());
  return report;
}

}  // namespace shardmesh
