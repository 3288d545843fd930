// SPDX-License-Identifier: Apache-2.0
// A state dict: build it, search it, change it, flatten it under PyTorch's names, and compare two.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.state;
import shardmesh.tree;

using namespace shardmesh;
using dict = state_dict<host_tensor>;  // host_tensor only moves, and so does the dict

namespace {

host_tensor vector_of(std::int64_t size) {
  return host_tensor::make(dtype::float32, {size}).value();
}

dict example() {
  state_dict_builder<host_tensor> b;
  b.begin(node_kind::mapping);
  b.begin("model", node_kind::mapping).begin("layers", node_kind::sequence);
  for (int layer = 0; layer < 2; ++layer)
    b.begin(node_kind::mapping).value("weight", vector_of(8)).value("bias", vector_of(1)).end();
  b.end().end();
  b.begin("optimizer", node_kind::mapping)
      .value("lr", 0.1)
      .begin("betas", node_kind::tuple)
      .value(0.9)
      .value(0.99)
      .end();
  b.end().value("step", 1000).end();
  return b.finish().value();
}

}  // namespace

int main() {
  dict a = example(), b = example();

  // Paths are typed: 0 is an index, "0" a name.
  std::printf("lr = %g\n", *a.find({"optimizer", "lr"})->floating());
  std::printf("layers: %s\n", a.contains({"model", "layers", 1}) && !a.contains({"model", "layers", "1"}) ? "2" : "?");

  b.set({"step"}, 1001).value();
  b.set({"model", "layers", 0, "bias"}, vector_of(3)).value();
  b.set({"optimizer", "history", 2}, "made on the way, with two empty places before it").value();
  b.erase({"optimizer", "betas"}).value();
  for (const path_difference& d : diff(a, b, {.tensor_values = false}).differences)
    std::printf("%s\n", to_string(d).c_str());

  const tree_spec shape = a.spec();
  auto parts = flatten(std::move(a), key_policy::torch_dcp).value();
  for (const auto& part : parts)
    std::printf("%s%s\n", part.name.c_str(), part.is_leaf() ? "" : " (kept whole, as in PyTorch)");
  const dict back = unflatten(std::move(parts), shape).value();
  return back.size() == 8 && !(back == b) ? 0 : 1;
}
