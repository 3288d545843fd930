// SPDX-License-Identifier: Apache-2.0
// Tests a program that changes a tensor during a save. The file may mix old and new values, but its checksums always
// match its bytes.
#include <catch2/catch_test_macros.hpp>
#include <changing_memory.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;

TEST_CASE("a checkpoint of memory that changes during the save passes verify, in every format with checksums") {
  constexpr std::int64_t rows = 3000, columns = 1001;  // neither a multiple of a page nor of a piece
  const changing_memory memory(static_cast<std::size_t>(rows * columns) * 4);
  memory.wait_for_changes();
  const const_tensor_view whole{memory.data(), dtype::float32, {}, {rows, columns}, {columns, 1}};
  const box left{{0, 0}, {rows, 400}}, right{{0, 400}, {rows, columns - 400}};
  std::vector<save_tensor> tensors(3);
  tensors[0] = {"whole", {"whole"}, {rows, columns}, {{box::whole({rows, columns}), whole, 0}}};
  tensors[1] = {
      "columns", {"columns"}, {rows, columns}, {{left, subview(whole, left)}, {right, subview(whole, right)}}};
  tensors[2] = {
      "row", {"row"}, {columns}, {{box::whole({columns}), {memory.data(), dtype::float32, {}, {columns}, {1}}}}};
  for (const auto& [format, name] :
       {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::safetensors, "one.safetensors"},
        std::pair{target_format::hf, "hf"}, std::pair{target_format::pt, "one.pt"},
        std::pair{target_format::torch_checkpointing, "ranks"}, std::pair{target_format::npz, "one.npz"}}) {
    const scratch_folder scratch;
    REQUIRE(save(scratch.path / name, tensors, format, {.durable = false}));
    auto reader = open_checkpoint(scratch.path / name).value();
    const verify_report report = verify(*reader).value();
    INFO(name << ": " << (report.ok() ? std::string("ok") : to_string(report.problems.front())));
    CHECK(report.ok());
  }
}
