// SPDX-License-Identifier: Apache-2.0
// Ranks whose memory changes while they save together: the checkpoint passes verify.
#include <catch2/catch_test_macros.hpp>
#include <changing_memory.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <rank_folder.hpp>
#include <string>
#include <utility>
import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;

TEST_CASE("ranks whose memory changes during a save write a checkpoint that passes verify") {
  constexpr std::int64_t rows = 1501, columns = 999;
  const changing_memory memory(static_cast<std::size_t>(rows * columns) * 4);
  memory.wait_for_changes();
  const tensor_view whole{memory.data(), dtype::float32, {}, {rows, columns}, {columns, 1}};
  for (const auto& [format, name] :
       {std::pair{target_format::dcp, "step"}, std::pair{target_format::safetensors, "step.safetensors"},
        std::pair{target_format::hf, "step"}}) {
    const fabric::rank_folder folder(name);
    on_ranks({2}, [&](any_communicator& comm) -> std::string {
      local_state mine;
      const auto add = [&](const std::string& key, const box& where) {
        mine.tensors.push_back({{key}, {rows, columns}, dtype::float32, {{where, subview(whole, where)}}});
      };
      add("replicated", box::whole({rows, columns}));
      add("of rank " + std::to_string(comm.rank()), box::whole({rows, columns}));
      add("rows", comm.rank() == 0 ? box{{0, 0}, {700, columns}} : box{{700, 0}, {rows - 700, columns}});
      add("columns", comm.rank() == 0 ? box{{0, 0}, {rows, 500}} : box{{0, 500}, {rows, columns - 500}});
      const auto report = save(folder.path / name, mine, comm, {.format = format, .durable = false, .within = 30s});
      if (!report) return text_of(report.error().problems());
      if (comm.rank() != 0) return "";
      auto reader = open_checkpoint(folder.path / name);
      if (!reader) return to_string(reader.error());
      return text_of(verify(**reader).value().problems);
    });
  }
}
