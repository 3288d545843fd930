// SPDX-License-Identifier: Apache-2.0
// Your own framework's tensor: specialise `adapter<T>`, and the library shards it, keeps it in state dicts, and reads
// checkpoints into it. Usage: own_framework [CHECKPOINT]   (with one: reads its first float32 matrix)
#include <shardmesh/adapter.hpp>
#include <shardmesh/tensor_properties.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

import shardmesh;

// The framework's type: a matrix of floats that owns its memory.
struct my_matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
  bool trained = false;
};

template <>
struct shardmesh::adapter<my_matrix> {
  // Required: the location of the elements, writable, or read-only for a const matrix.
  static tensor_view view(my_matrix& m) {
    return {reinterpret_cast<std::byte*>(m.values.data()), dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
  static const_tensor_view view(const my_matrix& m) {
    return {
        reinterpret_cast<const std::byte*>(m.values.data()), dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
  // For functions that make tensors.
  static my_matrix allocate(dtype, const extents& sizes, device) {
    return {sizes[0], sizes[1], std::vector<float>(static_cast<std::size_t>(sizes[0] * sizes[1])), false};
  }
  // For metadata that PyTorch also keeps.
  static tensor_properties properties(const my_matrix& m) {
    return {.type = dtype::float32, .requires_grad = m.trained};
  }
};
static_assert(shardmesh::allocatable_tensor<my_matrix>);

namespace {

using namespace shardmesh;

my_matrix matrix(std::int64_t rows, std::int64_t columns) {
  my_matrix made = adapter<my_matrix>::allocate(dtype::float32, {rows, columns}, {});
  for (std::size_t i = 0; i < made.values.size(); ++i) made.values[i] = static_cast<float>(i);
  return made;
}

// Rank 1 of two holds the lower half of an 8 x 4 matrix.
sharded_tensor<my_matrix> lower_half() {
  const auto upper = shard_metadata::make(extents{0, 0}, extents{4, 4}, "rank:0/cpu").value();
  const auto lower = shard_metadata::make(extents{4, 0}, extents{4, 4}, "rank:1/cpu").value();
  std::vector<shard<my_matrix>> mine;
  mine.push_back(shard<my_matrix>::make(matrix(4, 4), lower).value());
  return sharded_tensor<my_matrix>::make(std::move(mine), {{upper, lower}, {8, 4}, {}}, rank_group::world(2), 1)
      .value();
}

void read_first_matrix(const char* folder) {
  auto checkpoint = open_checkpoint(folder).value();
  for (const auto& tensor : checkpoint->contents().tensors) {
    if (tensor.shape.rank() != 2 || tensor.type != dtype::float32) continue;
    my_matrix to = adapter<my_matrix>::allocate(tensor.type, tensor.shape, {});
    load_into(*checkpoint, tensor.key, to).value();
    std::printf("%s[0][0] = %g\n", tensor.key.c_str(), static_cast<double>(to.values.at(0)));
    return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  state_dict<my_matrix> dict;
  dict.set({"model", "embedding"}, lower_half()).value();
  dict.set({"model", "bias"}, matrix(1, 4)).value();
  dict.set({"step"}, 1000).value();

  const sharded_tensor<my_matrix>& embedding = *dict.find({"model", "embedding"})->sharded_tensor();
  std::printf("embedding: %s, mine %s\n", to_string(embedding.metadata()).c_str(),
              to_string(embedding.local_shards().front().metadata()).c_str());
  std::printf("owners: %d\n", static_cast<int>(distribution_of(embedding).value().owners()));
  std::printf("bias[0][3] = %g\n", static_cast<double>(dict.find({"model", "bias"})->tensor()->values[3]));
  if (argc > 1) read_first_matrix(argv[1]);
  return dict.size() == 3 ? 0 : 1;
}
