// SPDX-License-Identifier: Apache-2.0
// Refusals of ranks that save together, before a file exists: every rank gets the same error, which names key, ranks,
// and boxes. Later faults are in checkpoint_faults_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "problems_of.hpp"

import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// A rank spoils its part in `spoil`; all ranks get an error with these texts, and no file appears.
void refuses(const std::string& name, const std::function<void(rows&, any_communicator&)>& spoil,
             const std::vector<std::string>& texts, const rank_save_options& options = {}) {
  const fabric::rank_folder folder(name);
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    spoil(mine, comm);
    rank_save_options now = options;
    now.within = 30s;
    const auto report = save(folder.path / "step", mine.state, comm, now);
    if (std::string wrong = must_say(problems_of(report), texts); !wrong.empty()) return wrong;
    if (!comm.all_gather({}, {.within = 30s})) return "the communicator is not usable any more";
    return fs::is_empty(folder.path) ? "" : "something was written";
  });
}

}  // namespace

TEST_CASE("ranks that disagree on a tensor get the key, the ranks and both sides, before a file exists") {
  refuses("shape",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().shape[0] += 1;
          },
          {"w: ranks disagree on the shape of the whole tensor (ranks 0, 1)", "expected ["});
  refuses("dtype",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().type = mine.part().memory.type = dtype::float32;
          },
          {"w: ranks disagree on the dtype (ranks 0, 1): expected int32, found float32"});
  refuses("kind",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() != 1) return;
            mine.state.tensors.clear();
            mine.state.objects.push_back({{"w"}, {}, {true}});
          },
          {"w: is a tensor on one rank and an object on another (ranks 0, 1)"});
  refuses(
      "name",
      [](rows& mine, any_communicator& comm) { mine.tensor().where = comm.rank() == 1 ? path{"a.b"} : path{"a", "b"}; },
      {"a.b: two paths have this name (ranks 0, 1): expected a.b, found [\"a.b\"]"});
}

TEST_CASE("boxes that do not tile a tensor are refused naming key, ranks and boxes") {
  refuses("gap",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().parts.clear();
          },
          {"w: is held by no rank in [64:128, 0:32)"});
  refuses("overlap",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().where.offsets[0] -= 1;
          },
          {"w: two ranks hold different boxes that overlap in [63:64, 0:32) (ranks 0, 1)",
           "w: is held by no rank in [127:128, 0:32)"});
  refuses("twice",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().parts.push_back(mine.part());
          },
          {"w: the rank has this box twice in [64:128, 0:32) (rank 1)"});
  refuses("outside",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().where.offsets[0] = 1'000'000;
          },
          {"w: a part extends beyond the tensor in [1000000:1000064, 0:32) (rank 1): expected a box within [",
           "], found [1000000:1000064, 0:32)"});
}

TEST_CASE("memory that does not fit is refused naming key, box and rank") {
  refuses("memory",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().memory.sizes[1] = 31;
          },
          {"w: the memory does not have the sizes of its box in [64:128, 0:32) (rank 1): expected [64, 32], found [64, "
           "31]"});
  refuses("none",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().memory.data = nullptr;
          },
          {"w: the part has no memory in [64:128, 0:32) (rank 1)"});
}

TEST_CASE("memory that nobody reaches is refused naming key, box, rank and device", "[host_memory]") {
  refuses(
      "device",
      [](rows& mine, any_communicator& comm) {
        if (comm.rank() == 1) mine.part().memory.where = {device_type::cuda, 0};
      },
      {"w: the memory is not host memory, and no backend reaches it in [64:128, 0:32) (rank 1): expected cpu, or a "
       "device of a backend, found cuda:0; open the scope of a backend that reaches it (cuda_scope, kokkos_scope)"});
}

TEST_CASE("objects that differ are refused naming both values, unless the lowest rank's is asked for") {
  const auto differ = [](rows& mine, any_communicator& comm) {
    mine.state.objects.push_back({{"step"}, {}, {std::int64_t{comm.rank() == 1 ? 4 : 3}}});
  };
  refuses("objects", differ,
          {"step: ranks hold different values of an object (ranks 0, 1): expected 3, found 4", "lowest_rank_objects"});
  refuses("opaque",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.state.objects.push_back({{"x"}, {}, {opaque_object{"my.type", {}}}});
          },
          {"x: an opaque object's bytes are not an archive of torch.save", "(rank 1)", "found my.type"});
  const fabric::rank_folder folder("lowest");
  on_ranks({2}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    differ(mine, comm);
    const auto report = save(folder.path / "step", mine.state, comm, {.lowest_rank_objects = true, .overwrite = true});
    if (!report) return text_of(report.error().problems());
    mine.state.objects.front().leaves = {false};
    const auto loaded = load(folder.path / "step", mine.state, comm);
    if (!loaded) return text_of(loaded.error().problems());
    return mine.state.objects.front().leaves == std::vector<plain_value>{std::int64_t{3}} ? "" : "another value";
  });
}

TEST_CASE("ranks that save to different places, or with different options, are told so") {
  const fabric::rank_folder folder("places");
  on_ranks({2, 3}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    const auto here = folder.path / (comm.rank() == 1 ? "b" : "a");
    if (std::string wrong = must_say(problems_of(save(here, mine.state, comm)),
                                     {"ranks disagree on 1 of 5 checkpoint options", "(destination)", "/b on rank"});
        !wrong.empty())
      return wrong;
    const auto report = save(folder.path / "a", mine.state, comm, {.overwrite = comm.rank() == 1});
    if (std::string wrong = must_say(problems_of(report), {"(options)", "overwrite true"}); !wrong.empty())
      return wrong;
    return fs::is_empty(folder.path) ? "" : "something was written";
  });
}

TEST_CASE("a destination that cannot be written is an error on every rank") {
  const fabric::rank_folder folder("destination");
  {
    std::ofstream(folder.path / "file") << "mine";
  }
  on_ranks({1, 2, 3}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    const auto said = [&](const fs::path& to, const std::vector<std::string>& texts) {
      return must_say(problems_of(save(to, mine.state, comm, {.overwrite = true})), texts);
    };
    if (std::string wrong = said(folder.path / "no" / "step", {"its parent folder does not exist", "(rank 0)"});
        !wrong.empty())
      return wrong;
    if (std::string wrong = said(folder.path / "file", {"is a file, and a folder is to be written"}); !wrong.empty())
      return wrong;
    return said(folder.path, {"the folder holds more than the files of one checkpoint and is not replaced"});
  });
}
