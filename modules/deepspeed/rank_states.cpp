// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :rank_states;

namespace shardmesh::deepspeed {

result<model_states> rank_loader::open_model(const std::string& name, bool is_first) {
  SHARDMESH_TRY(const saved_file file, made_.open_file(name));
  return read_model_states(file, {.has_shapes = is_first});
}

result<rank_states> rank_loader::load(const model_parallel_rank& rank) {
  if (rank.optimizers.empty()) return without_optimizers(rank);
  rank_states made;
  SHARDMESH_TRY(made.optimizers, optimizers_of(rank));
  SHARDMESH_TRY(const auto names, model_names(rank, made.optimizers.front().stage));
  for (const std::string& name : names) {
    SHARDMESH_TRY(model_states model, open_model(name, made.models.empty()));
    made.models.push_back(std::move(model));
  }
  return made;
}

result<rank_states> rank_loader::without_optimizers(const model_parallel_rank& rank) {
  if (!rank.models.empty())
    return made_
        .missing(rank.models.begin()->second, "a model file of ZeRO 3 has no '_optim_states.pt' files beside it")
        .with_hint("its parameters are in them");
  rank_states made;
  SHARDMESH_TRY(model_states model, open_model(rank.model, true));
  if (model.has_shapes)
    return made_.missing(rank.model, "no '_optim_states.pt' files are beside it, which have its float32 parameters")
        .with_hint("open it directly to read those of the training precision");
  made.models.push_back(std::move(model));
  return made;
}

result<std::vector<optimizer_states>> rank_loader::optimizers_of(const model_parallel_rank& rank) {
  const std::string& any = rank.optimizers.begin()->second;
  std::vector<optimizer_states> read;
  for (std::int64_t data = 0, count = 1; data < count; ++data) {
    const auto found = rank.optimizers.find(data);
    if (found == rank.optimizers.end()) {
      const auto ranks = read.empty() ? static_cast<std::int64_t>(rank.optimizers.size()) : count;
      return made_.missing(name_for_rank(any, data), fmt::format("a rank's part of the parameters, one of {}", ranks));
    }
    SHARDMESH_TRY(const saved_file file, made_.open_file(found->second));
    SHARDMESH_TRY(optimizer_states states, read_optimizer_states(file));
    read.push_back(std::move(states));
    count = read.front().partitions;
  }
  if (rank.optimizers.size() != read.size())
    return fail(errc::disagreement, "there are more optimizer files than ranks that saved it: some are of another save")
        .with_file((made_.step() / rank.optimizers.rbegin()->second).string())
        .with_values(fmt::format("{}, as 'partition_count' says", detail::counted(read.size(), "file")),
                     fmt::format("{}", rank.optimizers.size()));
  return read;
}

result<std::vector<std::string>> rank_loader::model_names(const model_parallel_rank& rank, std::int64_t stage) const {
  const auto of_another_save = [&](const std::string& name) {
    return fail(errc::disagreement, fmt::format("it is not a file of this save, which is of ZeRO {}", stage))
        .with_file((made_.step() / name).string());
  };
  const std::string& any = rank.optimizers.begin()->second;
  if (stage < 3) {
    if (rank.model.empty()) return made_.missing(model_file_beside(any, std::nullopt), "the model file");
    if (!rank.models.empty()) return of_another_save(rank.models.begin()->second);
    return std::vector<std::string>{rank.model};
  }
  if (!rank.model.empty()) return of_another_save(rank.model);
  std::vector<std::string> names;
  for (std::size_t data = 0; data < rank.optimizers.size(); ++data) {
    const auto found = rank.models.find(static_cast<std::int64_t>(data));
    if (found == rank.models.end())
      return made_.missing(model_file_beside(any, static_cast<std::int64_t>(data)), "a rank's model file");
    names.push_back(found->second);
  }
  if (rank.models.size() > names.size()) return of_another_save(rank.models.rbegin()->second);
  return names;
}

}  // namespace shardmesh::deepspeed
