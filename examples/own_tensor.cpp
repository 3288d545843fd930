// SPDX-License-Identifier: Apache-2.0
// A tensor type of one's own: specialise adapter<T>, and the library reads into it.
// Usage: own_tensor CHECKPOINT [KEY]   (without KEY: the first float32 matrix)
#include <shardmesh/adapter.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

import shardmesh;

struct my_matrix {
  std::int64_t rows, columns;
  std::vector<float> values;
};

template <>
struct shardmesh::adapter<my_matrix> {
  static tensor_view view(const my_matrix& m) {
    auto* data = reinterpret_cast<std::byte*>(const_cast<float*>(m.values.data()));
    return {data, dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
};
static_assert(shardmesh::local_tensor<my_matrix>);

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: own_tensor CHECKPOINT [KEY]\n"), 2;
  auto checkpoint = shardmesh::open_checkpoint(argv[1]).value();
  for (const auto& tensor : checkpoint->contents().tensors) {
    if (tensor.shape.rank() != 2 || tensor.type != shardmesh::dtype::float32) continue;
    if (argc > 2 && tensor.key != argv[2]) continue;
    my_matrix matrix{tensor.shape[0], tensor.shape[1],
                     std::vector<float>(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]))};
    shardmesh::load_into(*checkpoint, tensor.key, matrix).value();
    std::printf("%s[0][0] = %g\n", tensor.key.c_str(), static_cast<double>(matrix.values.at(0)));
    return 0;
  }
  return std::fprintf(stderr, "no such matrix in %s\n", argv[1]), 1;
}
