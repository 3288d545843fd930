// SPDX-License-Identifier: Apache-2.0
// Not exported: parses the names of ranks' files. Opening the files is in rank_files.
module shardmesh.checkpoint:rank_file_name;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// A parsed file name. "model_world_size_4_rank_1.pt" is the model's file of rank 1 of 4. Names such as "rank_3.pt" and
// "ep0-ba1-rank0.pt" state no world size: it is then the number of files.
struct rank_file_name {
  std::string stem;  // "model", "ep0-ba1"; "rank" if the name has nothing else
  std::optional<std::int64_t> world_size;
  std::int64_t rank = 0;
};

// Parses a file name; returns nothing for names of other files.
std::optional<rank_file_name> parse_rank_file_name(std::string_view file);

// The files of one save, by rank.
struct rank_file_group {
  std::string stem;
  std::optional<std::int64_t> world_size;
  std::map<std::int64_t, std::string> files;
};

// Groups the rank files of a folder by stem and world size. errc::io; errc::duplicate_key for two files of one rank.
result<std::vector<rank_file_group>> list_rank_files(const std::filesystem::path& folder);

}  // namespace shardmesh
