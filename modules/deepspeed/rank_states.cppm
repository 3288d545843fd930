// SPDX-License-Identifier: Apache-2.0
// Not exported: the files of one model-parallel rank, opened as parts of a checkpoint and read. Not here: what is made
// of them (reader).
module shardmesh.deepspeed:rank_states;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :model_states;
import :optimizer_states;
import :rank_files;
import :saved_values;

namespace shardmesh::deepspeed {

struct rank_states {
  std::vector<model_states> models;          // one, or (ZeRO 3) one of each rank
  std::vector<optimizer_states> optimizers;  // of each rank; none: ZeRO 0
};

class rank_loader {
 public:
  // `made` gets the files as parts; it must outlive this, as their names in its catalog begin with `folder`.
  rank_loader(composed_reader& made, std::filesystem::path step, std::string folder, const open_options& options)
      : made_(made), step_(std::move(step)), folder_(std::move(folder)), options_(options) {}

  // errc::incomplete_save for a file that is missing, errc::disagreement for one too many, those of the files.
  result<rank_states> load(const model_parallel_rank& rank);

 private:
  error missing(const std::string& name, std::string_view what) const;
  result<saved_file> open(const std::string& name);
  result<model_states> open_model(const std::string& name, bool is_first);
  result<std::vector<optimizer_states>> optimizers_of(const model_parallel_rank& rank);
  result<std::vector<std::string>> model_names(const model_parallel_rank& rank, std::int64_t stage) const;
  result<rank_states> without_optimizers(const model_parallel_rank& rank);

  composed_reader& made_;
  std::filesystem::path step_;
  std::string folder_;
  open_options options_;
};

}  // namespace shardmesh::deepspeed
