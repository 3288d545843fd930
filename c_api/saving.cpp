// SPDX-License-Identifier: Apache-2.0
#include "saving.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "../bindings/saving.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.mapping;

namespace c_api {
using namespace shardmesh;

target_format to_target(shardmesh_format format) {
  switch (format) {
    case SHARDMESH_FORMAT_DCP:
      return target_format::dcp;
    case SHARDMESH_FORMAT_SAFETENSORS:
      return target_format::safetensors;
    case SHARDMESH_FORMAT_HF:
      return target_format::hf;
    case SHARDMESH_FORMAT_TORCH:
      return target_format::pt;
    case SHARDMESH_FORMAT_TORCH_CHECKPOINTING:
      return target_format::torch_checkpointing;
    case SHARDMESH_FORMAT_GGUF:
      return target_format::gguf;
    case SHARDMESH_FORMAT_NPZ:
      return target_format::npz;
    default:
      refuse(
          fail(errc::invalid_argument, "no format that can be written has this number")
              .with_values("DCP, TORCH, SAFETENSORS, HF, TORCH_CHECKPOINTING, GGUF, or NPZ", std::to_string(format)));
  }
}

checked_saving::checked_saving(const shardmesh_save_options* options)
    : given_(given(options, "options for saving", offsetof(shardmesh_save_options, previous))) {
  to_target(given_.format);
  to_threads(given_.threads);
  to_memory(given_.memory_bytes, 0);
  if (given_.map == nullptr)
    refuse_without_map(choice());
  else if (given_.previous != nullptr)
    refuse_argument("map", "is set, and so is previous: set one of them");
}

void checked_saving::refuse_options_of_save() const {
  if (given_.previous != nullptr)
    refuse_argument("previous", "is set, and conversions write whole checkpoints: set it to null");
  if (given_.map != nullptr)
    refuse_argument("map", "is set, and conversions map the checkpoint that they read: open it with map");
}

mapping_choice checked_saving::choice() const {
  return {given_.map, given_.config, given_.sizes, given_.size_count, given_.map_inverse != 0};
}

chosen_mapping checked_saving::mapping() const {
  return to_mapping(choice(), {});
}

save_options checked_saving::with(bindings::watch& watching) const {
  save_options made;
  made.overwrite = given_.overwrite != 0;
  made.durable = given_.skip_sync == 0;
  made.memory_bytes = to_memory(given_.memory_bytes, made.memory_bytes);
  made.threads = given_.threads;
  if (given_.previous != nullptr) made.previous = given_.previous;
  made.cancel = watching.stop.get_token();
  made.progress = watching.progress();
  made.hooks.before_commit = watching.before_commit();
  return made;
}

void give_report(shardmesh_save_report** to, save_report made) {
  if (to == nullptr) return;
  auto handle = std::make_unique<shardmesh_save_report>();
  handle->made = std::move(made);
  *to = handle.release();
}

namespace {

save_part to_part(const shardmesh_save_part& wanted) {
  save_part made;
  made.from = to_view(wanted.from);
  made.where = box::whole(made.from.sizes);
  if (wanted.offsets != nullptr) made.where.offsets = to_sizes(wanted.offsets, wanted.from.rank, "offsets of a part");
  if (wanted.writer < 0)
    refuse(fail(errc::invalid_argument, "the writer of a part is negative").with_rank(wanted.writer));
  if (wanted.reserved != 0) refuse_unknown_field("part of a tensor");
  made.rank = wanted.writer;
  return made;
}

save_tensor to_tensor(const shardmesh_save_tensor& wanted) {
  save_tensor made;
  made.key = to_key(wanted.key, wanted.key_size);
  try {
    made.shape = to_sizes(wanted.shape, wanted.rank, "shape of a tensor");
    check(check_shape(made.shape));
    if (wanted.parts == nullptr || wanted.part_count == 0) refuse_argument("parts of a tensor", "are missing");
    for (const shardmesh_save_part& part : std::span(wanted.parts, wanted.part_count))
      made.parts.push_back(to_part(part));
  } catch (refusal& e) {
    e.problems.front().key = made.key;
    throw;
  }
  return made;
}

save_report save_with_map(const std::filesystem::path& to, std::span<const save_tensor> tensors,
                          const checked_saving& how, bindings::watch& watching) {
  const chosen_mapping chosen = how.mapping();
  convert_options options;
  options.format = how.format();
  bindings::set_saving(options, how.with(watching));
  return value_of(shardmesh::save_mapped(to, tensors, {}, chosen.mappings, chosen.sizes, options));
}

std::vector<save_tensor> to_tensors(const shardmesh_save_tensor* tensors, std::size_t count) {
  if (count > 0 && tensors == nullptr) refuse_null("tensors");
  std::vector<save_tensor> made;
  made.reserve(count);
  for (const shardmesh_save_tensor& one : std::span(tensors, count)) made.push_back(to_tensor(one));
  return made;
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_save(const char* path, const shardmesh_save_tensor* tensors, size_t tensor_count,
                                const shardmesh_save_options* options, shardmesh_save_report** report,
                                shardmesh_error** error) {
  if (report != nullptr) *report = nullptr;
  return guarded(error, [&] {
    const std::filesystem::path to = to_text(path, "path");
    const checked_saving how(options);
    const std::vector<shardmesh::save_tensor> wanted = to_tensors(tensors, tensor_count);
    give_report(report, watched_result(how.call(), [&](bindings::watch& watching) {
                  if (how.has_map()) return save_with_map(to, wanted, how, watching);
                  return value_of(shardmesh::save(to, wanted, how.format(), how.with(watching)));
                }));
  });
}

shardmesh_status shardmesh_save_report_describe(const shardmesh_save_report* report, shardmesh_save_counts* counts,
                                                shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::save_report& from = opened(report, "report").made;
    shardmesh_save_counts made{};
    made.tensors = from.tensors;
    made.bytes = from.bytes;
    made.objects = from.objects;
    made.files = from.files;
    made.skipped_tensors = from.skipped_tensors;
    made.skipped_objects = from.skipped_objects;
    made.excluded = from.excluded;
    made.note_count = from.notes.size();
    made.referred_bytes = from.referred_bytes;
    give(counts, made, "counts", offsetof(shardmesh_save_counts, referred_bytes));
  });
}

shardmesh_status shardmesh_save_report_note(const shardmesh_save_report* report, size_t index, shardmesh_text* note,
                                            shardmesh_error** error) {
  return guarded(error, [&] {
    const std::vector<std::string>& notes = opened(report, "report").made.notes;
    check_index(index, notes.size(), "note");
    needed(note, "note") = to_c(notes[index]);
  });
}

void shardmesh_save_report_free(shardmesh_save_report* report) {
  delete report;
}

}  // extern "C"
