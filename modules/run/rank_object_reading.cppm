// SPDX-License-Identifier: Apache-2.0
// Not exported: the objects of ranks that a step holds, as rank 0 reads them and as every rank gets them.
module shardmesh.run:rank_object_reading;

import shardmesh.std;
import shardmesh.core;
import :checkpoint_run;
import :rank_objects;

namespace shardmesh {

// Reads the objects of all ranks from a step, and encodes them for the other ranks.
// errc::invalid_argument when another number of ranks saved the step and the options refuse that; errc::bad_format
// naming the key; those of `open_checkpoint`.
// Cost: reads the description and these objects.
result<std::vector<std::byte>> read_rank_objects(const std::filesystem::path& step, std::int32_t ranks,
                                                 const checkpoint_run_options& options);

// The objects of one rank after a resume.
struct resumed_objects_of_rank {
  objects_of_rank own;
  std::vector<std::string> dropped;  // keys of the objects that no rank gets; ascending
};

// Decodes the answer of `read_rank_objects`, and chooses or makes this rank's objects.
// errc::communication for a malformed answer; errc::invalid_argument when the user's function fails.
result<resumed_objects_of_rank> choose_rank_objects(std::span<const std::byte> answer, std::int32_t rank,
                                                    std::int32_t ranks, const checkpoint_run_options& options);

}  // namespace shardmesh
