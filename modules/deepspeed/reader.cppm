// SPDX-License-Identifier: Apache-2.0
// Opens a DeepSpeed folder as a checkpoint. Such folders are recognised in folder.
export module shardmesh.deepspeed:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::deepspeed {

/// Opens one step that DeepSpeed saved, from the step's folder or the run's (see `step_folder`). The checkpoint has the
/// state dict of `zero_to_fp32.py` under the model's names, the optimizer's state per parameter as
/// `optimizer.state.NAME.PARAMETER`, and everything else that was saved. Tensors are made of pieces of the ranks'
/// files; opening reads only the files' descriptions. Universal checkpoints, which `ds_to_universal.py` made, are
/// opened as well.
/// \errors those of `step_folder` and of the files; errc::incomplete_save for a missing file of a rank,
///         errc::disagreement for ranks of different saves, errc::shape_mismatch when partitions and parameters do not
///         fit, errc::unsupported for parts without a merge rule (experts, pipeline stages); each names the file
/// Cost: O(files + ranks * parameters).
/// Source: deepspeed.utils.zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

}  // namespace shardmesh::deepspeed
