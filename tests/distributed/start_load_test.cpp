// SPDX-License-Identifier: Apache-2.0
// Background loads of many ranks: on every rank, each key is reported once, when all of the rank's parts are in its
// memory, whichever rank read them.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <fabric.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>

#include "problems_of.hpp"

import shardmesh.collective_checkpoint;
import shardmesh.test.holdings;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
using holdings::holding;
using holdings::tensor_model;
namespace fs = std::filesystem;

TEST_CASE("a key arrives once on each rank, when its bytes are there, whether this rank or another one read them") {
  const fabric::rank_folder folder("start-load");
  std::uint64_t number = 0;
  for (const read_sharing sharing : {read_sharing::group, read_sharing::each_rank})
    for (const bool check : {false, true}) {
      INFO("sharing " << static_cast<int>(sharing) << ", check " << check << ", SHARDMESH_SEED=" << fabric::seed());
      const std::uint64_t seed = fabric::seed() + ++number;
      on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
        const fs::path checkpoint = folder.path / std::to_string(comm.size());
        dice roll(seed);
        const std::vector<tensor_model> models = holdings::random_models(roll);
        const auto hold = [&](bool filled) {
          holding made;
          for (std::size_t t = 0; t < models.size(); ++t)
            made.add(t, models[t],
                     holdings::random_boxes(roll, models[t].shape, comm.size())[static_cast<std::size_t>(comm.rank())],
                     filled);
          return made;
        };
        const holding all = hold(true);
        const rank_save_options saving{.overwrite = true, .within = 30s};
        if (const auto saved = save(checkpoint, all.state, comm, saving); !saved)
          return text_of(saved.error().problems());
        holding mine = hold(false);
        std::multiset<std::string> arrived, expected;
        std::string wrong;
        rank_load_options options{.check = check, .within = 30s, .sharing = sharing};
        options.on_arrival = [&](const std::string& key) {
          arrived.insert(key);
          for (std::size_t t = 0; t < models.size(); ++t) {
            if (dotted(models[t].where) != key) continue;
            holding one;
            one.state.tensors.push_back(mine.state.tensors[t]);
            wrong += one.differences(std::span(&t, 1));
          }
        };
        auto loading = start_load(checkpoint, mine.state, comm, options);
        if (!loading) return to_string(loading.error());
        if (!loading->wait()) return text_of(loading->wait().error().problems());
        if (!wrong.empty()) return "arrived too early: " + wrong;
        for (const local_state_tensor& tensor : mine.state.tensors)
          if (!tensor.parts.empty()) expected.insert(dotted(tensor.where));
        return arrived == expected ? "" : "other keys arrived";
      });
    }
}

TEST_CASE("a rank that cancels its load in the background ends it on every rank") {
  const fabric::rank_folder folder("start-load-cancelled");
  on_ranks({2, 4}, [&](any_communicator& comm) {
    rows mine(comm.rank(), comm.size(), 3);
    const rank_save_options saving{.overwrite = true, .within = 30s};
    return text_of(problems_of(save(folder.path / std::to_string(comm.size()), mine.state, comm, saving)));
  });
  // Uses another communicator: the cancellation also ends a rank's remaining work of its own, such as the end of a
  // save.
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 0);
    std::stop_source stop;
    stop.request_stop();
    rank_load_options options{.within = 5s};
    if (comm.rank() == 1) options.cancel = stop.get_token();
    auto loading = start_load(folder.path / std::to_string(comm.size()), mine.state, comm, options);
    if (!loading) return to_string(loading.error());
    return must_say(problems_of(loading->wait()), {"rank 1 was cancelled"});
  });
}
