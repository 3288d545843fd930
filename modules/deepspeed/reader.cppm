// SPDX-License-Identifier: Apache-2.0
// reader: a DeepSpeed folder as a checkpoint. Not here: which folders are (folder).
export module shardmesh.deepspeed:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::deepspeed {

/// One step that DeepSpeed saved (the step's folder, or the run's: see `step_folder`): the state dict of
/// `zero_to_fp32.py` under the model's names, the optimizer's state per parameter as `optimizer.state.NAME.PARAMETER`,
/// and whatever else was saved. Every tensor is pieces of the ranks' files: opening reads their descriptions alone.
/// Also a universal checkpoint, which `ds_to_universal.py` made of such a step.
/// \errors those of `step_folder` and of the files; errc::incomplete_save for a rank's file that is missing,
///         errc::disagreement for ranks of different saves, errc::shape_mismatch where partitions and parameters do not
///         fit, errc::unsupported for what has no rule of merging (experts, pipeline stages); each names the file
/// Cost: O(files + ranks * parameters).
/// Source: deepspeed.utils.zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

}  // namespace shardmesh::deepspeed
