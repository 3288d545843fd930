// SPDX-License-Identifier: Apache-2.0
// The output of `map show`: which boxes of which sources make one tensor, as text, as a document, as a picture, and as
// a page.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.checkpoint_core;
import shardmesh.mapping;

namespace tool {

/// A tensor that a mapping makes, and the tensors of the checkpoint that the mapping is applied to.
struct shown_tensor {
  const shardmesh::bound_mapping& bound;
  const shardmesh::bound_tensor& tensor;
  const std::vector<shardmesh::tensor_entry>& sources;
};

/// The outputs of the command. Without a file, and without `json`, it prints text.
struct map_outputs {
  std::string svg, html;
  bool json = false, force = false;
};

/// Writes the requested outputs. No output may replace a file of `checkpoints`. Returns the exit status, and reports
/// failures.
int show_tensor(const shown_tensor& shown, const map_outputs& outputs, const std::vector<std::string>& checkpoints);

}  // namespace tool
