// SPDX-License-Identifier: Apache-2.0
// Not exported: the cut of each tensor between Meta's model-parallel ranks, by its name. Opening the ranks' files is in
// consolidated_files.
// Source: reshard_mp in meta-llama/llama-models, models/checkpoint.py
module shardmesh.checkpoint:consolidated_cut;

import shardmesh.std;
import shardmesh.core;
import :consolidated_sizes;

namespace shardmesh {

// How the parts in the files form one tensor.
struct consolidated_cut {
  extents whole;        // the tensor's shape
  std::size_t dim = 0;  // the dimension that is cut
  // The lengths along `dim` of the blocks of a part, which add up to the part. Each block is cut separately: the whole
  // has the first blocks of all parts, then the second blocks, and so on. Only dimension 0 can have several blocks.
  std::vector<std::int64_t> blocks;
};

// Returns the cut of a tensor whose parts have the shape `part`. Returns nothing when its name is none of those that
// are cut.
// \errors errc::shape_mismatch when the parts do not form the shape that the sizes give; errc::missing_key for a size
//         that is needed and unknown; errc::unsupported for implausibly many experts; errc::overflow. None names the
//         key or the file.
result<std::optional<consolidated_cut>> cut_of(std::string_view key, const extents& part,
                                               const consolidated_sizes& sizes);

// Returns true for tensors of which each rank has a copy by the model's code: norms, routers, and some of the vision
// encoder's. Meta's programs read the first rank's. The copies in published models differ a little (Llama 3 70B),
// because training did not keep them equal.
bool is_replicated_by_name(std::string_view key);

}  // namespace shardmesh
