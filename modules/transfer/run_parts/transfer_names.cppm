// SPDX-License-Identifier: Apache-2.0
// The names of an executor's transfers, for errors. Exports nothing.
module shardmesh.transfer:transfer_names;

import shardmesh.std;
import shardmesh.core;
import :route;
import :step;

namespace shardmesh {

class transfer_names {
 public:
  // `rank` is this rank, which errors name.
  inline transfer_names(std::vector<std::string> names, std::int32_t rank) : names_(std::move(names)), rank_(rank) {}

  inline const std::string& of(std::size_t transfer) const { return names_[transfer]; }
  // Adds to an error where it happened: the transfer, this rank, and the step's box.
  inline error located(error e, const task& work, const step& s) const {
    return std::move(e).with_key(of(work.transfer)).with_rank(rank_).with_box(s.where);
  }

 private:
  std::vector<std::string> names_;
  std::int32_t rank_;
};

}  // namespace shardmesh
