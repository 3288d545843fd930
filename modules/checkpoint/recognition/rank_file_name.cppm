// SPDX-License-Identifier: Apache-2.0
// Not exported: what the names of ranks' files say. Not here: opening them (rank_files).
module shardmesh.checkpoint:rank_file_name;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// "model_world_size_4_rank_1.pt" is the file of rank 1 of 4 of the model; the ranks of "rank_3.pt", "ep0-ba1-rank0.pt"
// are as many as there are files.
struct rank_file_name {
  std::string stem;  // "model", "ep0-ba1"; "rank" where there is nothing else
  std::optional<std::int64_t> world_size;
  std::int64_t rank = 0;
};

// Nothing for other names.
std::optional<rank_file_name> parse_rank_file_name(std::string_view file);

// The files of one save, by rank.
struct rank_file_group {
  std::string stem;
  std::optional<std::int64_t> world_size;
  std::map<std::int64_t, std::string> files;
};

// The groups of a folder's files, by stem and world size. errc::io; errc::duplicate_key for two files of one rank.
result<std::vector<rank_file_group>> list_rank_files(const std::filesystem::path& folder);

}  // namespace shardmesh
