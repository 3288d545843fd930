// SPDX-License-Identifier: Apache-2.0
// Not exported: the sizes of a model by which the parts of its tensors are merged, from the params.json that Meta
// publishes with it. The rules are in consolidated_cut.
module shardmesh.checkpoint:consolidated_sizes;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// All are positive. `queries` and `keys` are at most 2^40.
struct consolidated_sizes {
  std::int64_t files = 1;                    // each tensor is cut into so many parts
  std::int64_t model = 0;                    // "dim": the length of a token's vector
  std::int64_t queries = 0;                  // of all query heads together
  std::int64_t keys = 0;                     // of all key heads together, and of all value heads; a multiple of `files`
  std::optional<std::int64_t> vocabulary{};  // Llama 1 and 2 state -1
  std::optional<std::int64_t> feed_forward{};   // of the layers that Meta computes by one formula
  std::optional<std::int64_t> expert_number{};  // of a mixture of experts
};

// Reads the sizes. `files` is the number of files of the model.
// \errors errc::missing_key (no such file; "dim" or "n_heads" is not a positive integer), errc::bad_format (not a JSON
//         object, or sizes that do not divide), errc::overflow, errc::unsupported for key-value heads that the files
//         cannot hold evenly, errc::io; each names the file
result<consolidated_sizes> read_consolidated_sizes(const std::filesystem::path& file, std::int64_t files);

}  // namespace shardmesh
