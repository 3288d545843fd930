// SPDX-License-Identifier: Apache-2.0
// Not exported: opens and reads the files of one model-parallel rank as parts of a checkpoint. Their combination is in
// reader.
module shardmesh.deepspeed:rank_states;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :folder_reader;
import :model_states;
import :optimizer_states;
import :rank_files;
import :saved_values;

namespace shardmesh::deepspeed {

struct rank_states {
  std::vector<model_states> models;          // one, or (ZeRO 3) one per data-parallel rank
  std::vector<optimizer_states> optimizers;  // one per data-parallel rank; none for ZeRO 0
};

class rank_loader {
 public:
  // `made` receives the files as parts; it must outlive this object.
  explicit rank_loader(folder_reader& made) : made_(made) {}

  // errc::incomplete_save for a missing file, errc::disagreement for an extra one, and the files' errors.
  result<rank_states> load(const model_parallel_rank& rank);

 private:
  result<model_states> open_model(const std::string& name, bool is_first);
  result<std::vector<optimizer_states>> optimizers_of(const model_parallel_rank& rank);
  result<std::vector<std::string>> model_names(const model_parallel_rank& rank, std::int64_t stage) const;
  result<rank_states> without_optimizers(const model_parallel_rank& rank);

  folder_reader& made_;
};

}  // namespace shardmesh::deepspeed
