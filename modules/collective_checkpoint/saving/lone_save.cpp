// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :lone_save;
import :object_json;
import :rank_state;
import :save_assignment;

namespace shardmesh {
namespace {

using object_archives = std::vector<std::vector<std::byte>>;

// The objects of the state, as archives in their order.
result<object_archives> archives_of(const const_local_state& held) {
  object_archives made;
  for (const local_state_object& object : held.objects) {
    auto archive = torch_file::archive_of_object(object);
    if (!archive) return std::move(archive).error().with_key(dotted(object.where));
    made.push_back(*std::move(archive));
  }
  return made;
}

// The state as its only rank describes it.
result<merged_state> merged_alone(const const_local_state& held) {
  SHARDMESH_TRY(check_held(held));
  std::vector<described_object> objects;
  for (const local_state_object& object : held.objects) objects.push_back({object.where, {}, 0, {}});
  const std::vector<std::byte> note = describe(held, objects);
  SHARDMESH_TRY(merged_state all, merge_states({&note, 1}));
  SHARDMESH_TRY(std::move(all.problems).outcome());
  return all;
}

}  // namespace

bool is_written_alone(target_format to) {
  return to == target_format::pt || to == target_format::torch_checkpointing || to == target_format::gguf ||
         to == target_format::npz;
}

result<save_report> save_alone(const std::filesystem::path& destination, const const_local_state& held,
                               const rank_save_options& options) {
  SHARDMESH_TRY(check_previous(options.format, options.previous));
  SHARDMESH_TRY(const merged_state all, merged_alone(held));
  SHARDMESH_TRY(const object_archives archives, archives_of(held));
  selection_result chosen = select_saved(all, options.selection);
  if (!chosen.errors.empty()) return fail_all(std::move(chosen.errors));
  std::size_t skipped = 0;
  if (options.skip_objects)
    skipped = std::erase_if(chosen.kept, [&](const selected& one) { return one.index >= all.tensors.size(); });
  save_assignment work = assign_writers(all, chosen.kept, held, 0, options.lowest_rank_objects);
  SHARDMESH_TRY(std::move(work.problems).outcome());
  for (std::size_t i = 0; i < work.objects.size(); ++i) {
    const std::vector<std::byte>& archive = archives[static_cast<std::size_t>(work.object_indices[i])];
    work.objects[i].archive = [&archive]() -> result<std::vector<std::byte>> { return archive; };
    work.objects[i].json = [&archive, key = work.objects[i].key] { return json_of_archive(archive, key); };
  }
  SHARDMESH_TRY(save_report report, target_of(options.format)
                                        .write(destination, std::move(work.tensors), work.objects, work.source, {},
                                               replacing_checkpoints(options.saving())));
  report.notes.insert(report.notes.begin(), chosen.notes.begin(), chosen.notes.end());
  report.excluded += static_cast<std::int64_t>(chosen.excluded);
  report.skipped_objects += static_cast<std::int64_t>(skipped);
  return report;
}

}  // namespace shardmesh
