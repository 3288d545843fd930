// SPDX-License-Identifier: Apache-2.0
// Features that several modules provide together, through the umbrella alone. Names are checked by exported_names.py.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.fsdp;

using namespace shardmesh;

TEST_CASE("parameters are flattened through the umbrella") {
  const device_mesh mesh = device_mesh::make(extents{1, 1}).value();
  std::vector<named_parameter<host_tensor>> parameters;
  parameters.push_back({"w", state_value<host_tensor>(host_tensor::make(dtype::float32, {2, 3}).value())});
  const flatten_parameters_options options{.prefix = "block"};
  const auto made =
      flatten_parameters<host_tensor>(std::move(parameters), tensor_parallel_extension{mesh}, mesh, 0, 0, options);
  REQUIRE(made);
  CHECK(made->unit.prefix == "block");
  CHECK(made->unit.parameters.unsharded_numel() == 6);
}
