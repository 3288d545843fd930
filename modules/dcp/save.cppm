// SPDX-License-Identifier: Apache-2.0
// Writes DCP: a folder that torch.distributed.checkpoint.load reads back bit for bit.
export module shardmesh.dcp:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :metadata;

export namespace shardmesh::dcp {

/// Writes `.metadata` and one `__RANK_0.distcp` per rank that owns a chunk or object. Each chunk is a torch.save
/// archive like PyTorch's own; objects are copied verbatim. Planner data comes from the entries' paths, and `extras`
/// are carried through. Streams from `source`. The folder also gets the record of `checksum`, which PyTorch ignores.
/// \errors errc::duplicate_key (two entries of one key) and errc::unsupported (a dtype that PyTorch lacks), one problem
///         for each entry; chunks that do not tile their tensor; those of source, staged output, and executor
/// Source: torch/distributed/checkpoint/{filesystem,default_planner}.py
result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const dcp::extras& extras,
                         const save_options& options = {});

}  // namespace shardmesh::dcp
