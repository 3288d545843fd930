// SPDX-License-Identifier: Apache-2.0
module;
module shardmesh.checkpoint_core;

namespace shardmesh {

result<void> problem_report::outcome() const {
  if (ok()) return {};
  return problems.front();
}

}  // namespace shardmesh
