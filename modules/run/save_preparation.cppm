// SPDX-License-Identifier: Apache-2.0
// Not exported: the decisions and records of rank 0 before a step is saved, and after it has appeared. The ranks'
// agreement is in `checkpoint_run`.
module shardmesh.run:save_preparation;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import :checkpoint_run;
import :run_record;
import :step_names;

namespace shardmesh {

// A step to be saved.
struct step_to_save {
  const std::filesystem::path& run;
  std::int64_t step = 0;
  const checkpoint_run_options& options;
  const run_save_options& saving;
  std::vector<std::int64_t> in_flight;    // steps that are being saved
  std::set<std::string> needed;           // names of the folders to which those refer
  const std::set<std::int64_t>& damaged;  // steps that a resume found damaged
};

// The entry of a step in the record of a run, and its folder, before a save.
struct earlier_record {
  std::optional<run_record::entry> entry;                         // nothing: the step had none
  std::optional<std::pair<std::uint64_t, std::uint64_t>> folder;  // the device and inode of the step; nothing: no step
};

// The decisions of rank 0.
struct save_preparation {
  bool overwrite = false;
  std::filesystem::path previous;
  std::vector<std::string> notes;
  std::optional<earlier_record> earlier;  // nothing: the save is not recorded
};

// Decides whether a damaged step is replaced, and to which step the new one refers. Records time and metric before the
// step appears, so that a killed process leaves no step without its metric.
// errc::invalid_argument naming the folder that refers to a step to be replaced; errc::destination_exists (the step is
// a link); those of `find_latest_step`.
result<save_preparation> prepare_save(const step_to_save& save);

// Restores the record of a step after its save has failed: the metric of the failed save must not become that of the
// step that is there. A step that was replaced before the failure keeps its new record. errc::bad_format, errc::io,
// errc::no_space.
result<void> restore_record(const std::filesystem::path& run, std::int64_t step, step_names names,
                            const earlier_record& earlier, bool durable);

// Updates Megatron's tracker file after a step has appeared.
result<void> publish_step(const std::filesystem::path& run, std::int64_t step, step_names names, bool durable);

}  // namespace shardmesh
