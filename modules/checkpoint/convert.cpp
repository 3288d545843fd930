// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;
import shardmesh.torch_file;
import :carried;
import :entry_check;
import :merge_tensors;
import :seen_reader;

namespace shardmesh {
namespace {

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

// What safetensors cannot hold; the writer refuses whatever is left of it.
bool is_unsupported(const output_tensor& tensor) {
  const safetensors::tensor entry{tensor.key, tensor.type, tensor.bytes.from.global_shape()};
  return tensor.archive || !safetensors::problems_of({&entry, 1}).empty();
}

std::vector<error> refusals_of(const checkpoint_reader& reader, std::span<const resized_tensor> differences) {
  std::vector<error> problems;
  for (const resized_tensor& tensor : differences)
    problems.push_back(fail(errc::shape_mismatch, "the checkpoint given by like has another shape")
                           .with_key(tensor.key)
                           .with_file(reader.path().string())
                           .with_values(to_string(tensor.wanted), to_string(tensor.stored))
                           .with_hint("allow_shape_mismatch cuts it or fills it with zeros"));
  return problems;
}

// A flat name; what has a path already keeps it, with its indices and integer keys.
void split_at_dots(path& where, std::string_view key) {
  if (where.size() > 1 || (where.size() == 1 && (where[0].is_index() || where[0].is_integer() || where[0].is_python())))
    return;
  where = {};
  for (std::size_t begin = 0;;) {
    const std::size_t dot = key.find('.', begin);
    where.push_back(std::string(key.substr(begin, dot - begin)));
    if (dot == std::string_view::npos) return;
    begin = dot + 1;
  }
}

// Paths that make no tree are the source's; the destination is an argument.
void find_source_of(const checkpoint_reader& reader, std::vector<error>& problems) {
  for (error& problem : problems) {
    if (!problem.file.empty()) continue;
    if (problem.code == errc::invalid_argument) problem.code = errc::unsupported;
    if (problem.code == errc::unsupported || problem.code == errc::duplicate_key) problem.file = reader.path().string();
  }
}

// Names tensors that cannot be converted any further. They are copied as archives of their own, which a file of
// torch.save does not have.
std::optional<std::string> note_of_dead_ends(checkpoint_reader& reader, const conversion& work) {
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < work.tensors.size(); ++i)
    if (work.tensors[i].archive) whole.push_back(i);
  if (whole.empty()) return std::nullopt;
  const auto known = torch_file::wrapping_tensors::open(reader);
  std::vector<std::string> names;
  for (const std::size_t i : whole) {
    if (known && known->components_of(work.sources[i])) continue;
    const tensor_entry& stored = reader.contents().tensors[work.sources[i]];
    names.push_back(fmt::format("{} (a {})", work.tensors[i].key, stored.opaque_kind));
  }
  if (names.empty()) return std::nullopt;
  return fmt::format("{} copied whole, which no command can convert from there again (keep the source): {}",
                     names.size() == 1 ? "1 tensor is" : fmt::format("{} tensors are", names.size()), name_list(names));
}

// The new name of an entry is one key, however nested the old one was.
std::optional<std::string> note_of_flat_names(const catalog& stored, const conversion& work) {
  std::vector<std::string> flat;
  const auto look = [&](const std::string& key, const path& was, const std::string& old) {
    if (key != old && was.size() > 1) flat.push_back(key);
  };
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    const tensor_entry& entry = stored.tensors[work.sources[i]];
    look(work.tensors[i].key, entry.where, entry.key);
  }
  for (std::size_t i = 0; i < work.objects.size(); ++i) {
    const object_entry& entry = stored.objects[work.object_sources[i]];
    look(work.objects[i].key, entry.where, entry.key);
  }
  if (flat.empty()) return std::nullopt;
  return fmt::format("renamed, and no longer nested: {} (--nest splits such names at dots)", name_list(flat));
}

}  // namespace

save_report convert(checkpoint_reader& given, const std::filesystem::path& destination,
                    const convert_options& options) {
  if (auto apart = check_apart(destination, given); !apart) return failed(std::move(apart).error());
  const bool to_dcp = options.to == target_format::dcp, to_pt = options.to == target_format::pt,
             to_torch_checkpointing = options.to == target_format::torch_checkpointing;
  if (!to_torch_checkpointing && (!options.item.empty() || options.safetensors_files))
    return failed(fail(errc::invalid_argument, "an item and a payload are of torch-checkpointing alone")
                      .with_file(destination.string()));
  // Pickles hold objects with tensors inside as they are, and nested paths; elsewhere their tensors are entries.
  const bool to_pickles = to_dcp || to_pt || to_torch_checkpointing;
  seen_reader seen(given);
  if (auto done = seen.take_apart(to_pickles, options.components); !done) return failed(std::move(done).error());
  checkpoint_reader& whole = seen.last();
  std::vector<std::string> resized_notes;
  std::unique_ptr<checkpoint_reader> resized;
  if (options.shapes_like) {
    if (auto apart = check_apart(destination, *options.shapes_like); !apart) return failed(std::move(apart).error());
    std::vector<resized_tensor> differences = shape_differences(whole, options.selection, *options.shapes_like);
    // What a wrapping tensor is made of has the sizes that its values have.
    std::erase_if(differences, [&](const resized_tensor& tensor) { return seen.is_component(tensor.key); });
    if (!options.allow_shape_mismatch && !differences.empty()) return refused(refusals_of(whole, differences));
    if (!differences.empty()) {
      whole.identify_opaque_tensors();  // what is no plain tensor is not resized
      auto made = resize_tensors(whole, differences);
      if (!made) return failed(std::move(made).error());
      resized = *std::move(made);
      for (const resized_tensor& tensor : differences) resized_notes.push_back(to_string(tensor));
    }
  }
  checkpoint_reader& reader = resized ? *resized : whole;
  conversion work = select_for_output(reader, options.selection);
  work.notes.insert(work.notes.end(), resized_notes.begin(), resized_notes.end());
  save_report skipped;
  if (to_dcp) leave_to_side_files(reader, work);
  if (to_pickles && (to_dcp || !options.skip_objects)) find_unpicklable(reader, work);
  if (auto lost = find_lost_tensors(reader, work, options.skip_unsupported)) work.problems.push_back(*std::move(lost));
  settle_unsupported(work, options.skip_unsupported, skipped);
  if (!to_pickles && !options.skip_unsupported) refuse_archives(reader, work);
  if (!work.problems.empty()) return refused(std::move(work.problems));
  auto record = recorded_sums::open(reader);
  if (!record) return failed(std::move(record).error());
  chunk_source source = chunk_source::checking(reader, *record);
  const save_options saving = with_last_check(options.saving, reader, source);
  if (auto merged = merge_tensors(reader, work, options.merge, source, options.saving.threads); !merged)
    return failed(std::move(merged).error());
  std::int64_t skipped_tensors = skipped.skipped_tensors, skipped_objects = skipped.skipped_objects;
  if (to_pt || to_torch_checkpointing)
    if (auto note = note_of_dead_ends(reader, work)) work.notes.push_back(*std::move(note));
  if (to_pt || to_torch_checkpointing)
    if (auto note = options.nest ? std::nullopt : note_of_flat_names(reader.contents(), work))
      work.notes.push_back(*std::move(note));
  if (to_pickles && options.nest) {
    for (output_tensor& tensor : work.tensors) split_at_dots(tensor.where, tensor.key);
    for (output_object& object : work.objects) split_at_dots(object.where, object.key);
  }
  if (!to_pickles && options.skip_unsupported)
    skipped_tensors += drop_tensors(work, [](const auto& tensor) { return is_unsupported(tensor); });
  if (auto note = seen.note_of_lost_ways_back(work)) work.notes.push_back(*std::move(note));
  if (!to_dcp && options.skip_objects) skipped_objects += drop_objects(work, [](const auto&) { return true; });
  std::vector<error> problems;
  if (to_pickles) problems = find_path_conflicts(work.tensors, work.objects);
  if (problems.empty()) problems = check_before_copying(reader, work, record->get(), options.saving.threads);
  if (problems.empty() && to_dcp) problems = check_side_entries(reader, options.saving.threads);
  if (!problems.empty()) return refused(std::move(problems));
  if (to_dcp) make_objects_of_layouts(work);
  auto beside = carried_to(options.to, reader, work, work.notes);
  if (!beside) return failed(std::move(beside).error());
  save_report report;
  if (to_dcp) {
    report = dcp::save(destination, std::move(work.tensors), work.objects, source, beside->extras,
                       replacing_checkpoints(saving));
  } else if (to_pt) {
    report =
        torch_file::save(destination, std::move(work.tensors), work.objects, source, replacing_checkpoints(saving));
    find_source_of(reader, report.problems);
  } else if (to_torch_checkpointing) {
    using torch_checkpointing::payload;
    const torch_checkpointing::folder_options format{options.safetensors_files ? payload::safetensors : payload::torch,
                                                     options.item};
    report = torch_checkpointing::save(destination, std::move(work.tensors), work.objects, source, format,
                                       replacing_checkpoints(saving));
    find_source_of(reader, report.problems);
  } else {
    beside->files.max_shard_bytes = options.max_shard_bytes;
    report = safetensors::save(destination, std::move(work.tensors), work.objects, source, beside->files,
                               replacing_checkpoints(saving));
  }
  report.skipped_tensors = skipped_tensors;
  report.skipped_objects = skipped_objects;
  report.excluded = work.excluded;
  report.notes.insert(report.notes.begin(), work.notes.begin(), work.notes.end());
  return report;
}

}  // namespace shardmesh
