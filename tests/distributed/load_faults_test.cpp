// SPDX-License-Identifier: Apache-2.0
// Faults while ranks load together: every rank gets the same error, which names keys, shapes, and files.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
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

TEST_CASE("a load names the keys that are missing, surplus or of another kind, and the wanted shapes") {
  const fabric::rank_folder folder("load");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    mine.state.objects.push_back({{"step"}, {}, {std::int64_t{3}}});
    const auto saved = save(checkpoint, mine.state, comm, {.overwrite = true, .within = 30s});
    if (!saved) return text_of(saved.error().problems());
    const std::int32_t last = comm.size() - 1;
    const auto says = [&](const std::function<void(local_state&)>& change, const std::vector<std::string>& texts,
                          const rank_load_options& options = {}) {
      rows wanted(comm.rank(), comm.size(), 0);
      wanted.state.objects = mine.state.objects;
      if (comm.rank() == last) change(wanted.state);
      return must_say(problems_of(load(checkpoint, wanted.state, comm, options)), texts);
    };
    std::string wrong = says([](local_state& s) { s.objects.push_back({{"lr"}, {}, {0.5}}); },
                             {"lr: the checkpoint has no such object (rank " + std::to_string(last) + ")"});
    if (!wrong.empty()) return wrong;
    wrong = says([](local_state& s) { s.tensors.push_back({{"v"}, {2}, dtype::int8, {}}); },
                 {"v: the checkpoint has no such tensor (rank " + std::to_string(last) + ")"});
    if (!wrong.empty()) return wrong;
    wrong = says(
        [](local_state& s) {
          s.objects.clear();
          s.tensors.push_back({{"step"}, {2}, dtype::int8, {}});
        },
        {"step: "});
    if (!wrong.empty()) return wrong;
    if (comm.size() == 1) {
      wrong = says(
          [](local_state& s) { s.tensors.front().shape[0] += 1; },
          {"w: the requested tensor has a different shape than the stored one (rank 0): expected [64, 32], found [65"});
      if (!wrong.empty()) return wrong;
    }
    // Missing keys may be ignored and surplus ones refused.
    rows wanted(comm.rank(), comm.size(), 0);
    wanted.state.objects.push_back({{"lr"}, {}, {0.5}});
    const auto report = load(checkpoint, wanted.state, comm, {.missing = key_check::ignore});
    if (!report) return text_of(report.error().problems());
    if (report->missing != std::vector<std::string>{"lr"} || report->unexpected != std::vector<std::string>{"step"} ||
        report->loaded != std::vector<std::string>{"w"})
      return "the report names other keys";
    if (wanted.memory != mine.memory) return "the values differ";
    return must_say(problems_of(load(checkpoint, wanted.state, comm,
                                     {.missing = key_check::ignore, .unexpected = key_check::strict})),
                    {"step: the checkpoint has this entry, but no rank requests it"});
  });
}

TEST_CASE("a rank that cannot open the checkpoint, or opens another one, fails the load on every rank") {
  const fabric::rank_folder folder("open");
  on_ranks({2, 3}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 5);
    for (const char* name : {"a", "b"}) {
      if (name[0] == 'b') mine.state.objects.push_back({{"step"}, {}, {true}});
      const auto saved = save(folder.path / name, mine.state, comm, {.overwrite = true});
      if (!saved) return text_of(saved.error().problems());
    }
    const auto from = [&](const char* name) {
      return problems_of(load(folder.path / (comm.rank() == 1 ? name : "a"), mine.state, comm));
    };
    if (std::string wrong = must_say(from("nowhere"), {"nowhere", "(rank 1)"}); !wrong.empty()) return wrong;
    return must_say(from("b"), {"ranks disagree", "(checkpoint)", "1 tensor and 1 object"});
  });
}

TEST_CASE("a chunk that is damaged fails the load on every rank, naming the file") {
  const fabric::rank_folder folder("damaged");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    const auto saved = save(checkpoint, mine.state, comm, {.overwrite = true});
    if (!saved) return text_of(saved.error().problems());
    if (comm.rank() == 0) fs::resize_file(checkpoint / "__1_0.distcp", 100);
    static_cast<void>(comm.all_gather({}, {.within = 30s}));
    return must_say(problems_of(load(checkpoint, mine.state, comm)), {"__1_0.distcp"});
  });
}

TEST_CASE(
    "keys that a rank has in one memory are loaded when their values are equal, and parts that meet are refused") {
  const fabric::rank_folder folder("tied");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    // "w" and "same" are equal, "other" differs.
    rows mine(comm.rank(), comm.size(), 5), differs(comm.rank(), comm.size(), 6);
    const auto add = [](local_state& to, const local_state_tensor& from, const std::string& name) {
      to.tensors.push_back(from);
      to.tensors.back().where = {name};
    };
    add(mine.state, mine.tensor(), "same");
    add(mine.state, differs.tensor(), "other");
    const auto saved = save(checkpoint, mine.state, comm, {.overwrite = true});
    if (!saved) return text_of(saved.error().problems());
    const std::int32_t last = comm.size() - 1;
    for (const read_sharing sharing : {read_sharing::each_rank, read_sharing::group}) {
      const rank_load_options options{.sharing = sharing, .missing = key_check::ignore};
      // On the last rank alone, or on all.
      for (const bool all : {false, true}) {
        const auto tie = [&](rows& wanted, const std::string& name) {
          if (all || comm.rank() == last) add(wanted.state, wanted.tensor(), name);
        };
        for (const char* const name : {"same", "missing"}) {
          rows wanted(comm.rank(), comm.size(), 0);
          tie(wanted, name);
          const auto report = load(checkpoint, wanted.state, comm, options);
          if (!report) return text_of(report.error().problems());
          if (wanted.memory != mine.memory) return std::string("the values differ beside ") + name;
        }
        rows wanted(comm.rank(), comm.size(), 0);
        tie(wanted, "other");
        const std::string rank = all ? "0" : std::to_string(last);
        if (std::string wrong = must_say(problems_of(load(checkpoint, wanted.state, comm, options)),
                                         {"other: fills the memory that w fills, with other values",
                                          "(rank " + rank + ")", "load tied tensors from a checkpoint"});
            !wrong.empty())
          return wrong;
        rows meeting(comm.rank(), comm.size(), 0);
        tie(meeting, "same");
        if (meeting.state.tensors.size() > 1) {
          meeting.memory.resize(meeting.memory.size() + 1);  // the same rows, shifted by one element
          meeting.part().memory.data = reinterpret_cast<std::byte*>(meeting.memory.data());
          meeting.state.tensors.back().parts.front().memory.data =
              reinterpret_cast<std::byte*>(meeting.memory.data() + 1);
        }
        if (std::string wrong = must_say(problems_of(load(checkpoint, meeting.state, comm, options)),
                                         {"same: fills a part of the memory that w fills", "(rank " + rank + ")"});
            !wrong.empty())
          return wrong;
      }
    }
    return "";
  });
}
