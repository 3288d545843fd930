// SPDX-License-Identifier: Apache-2.0
// Saves your own tensor type as a checkpoint that PyTorch loads.
#include <shardmesh/adapter.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

import shardmesh;

// Your type: it knows nothing of shardmesh.
struct matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
};

// shardmesh's view of it: the location of the elements, their dtype, sizes, and strides.
template <>
struct shardmesh::adapter<matrix> {
  static tensor_view view(matrix& m) {
    return {reinterpret_cast<std::byte*>(m.values.data()), dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
  static const_tensor_view view(const matrix& m) {
    return {
        reinterpret_cast<const std::byte*>(m.values.data()), dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
};

using namespace shardmesh;

int main() {
  state_dict<matrix> state;
  state.set({"model", "weight"}, matrix{2, 3, {1, 2, 3, 4, 5, 6}}).value();  // value() throws on failure
  state.set({"step"}, 1000).value();

  // One process. Several ranks pass their communicator, and each saves its part.
  const auto saved = save("saved", state, {.overwrite = true});
  if (!saved) return std::fprintf(stderr, "%s\n", to_string(saved.error()).c_str()), 1;
  std::printf("wrote saved\n");
}
