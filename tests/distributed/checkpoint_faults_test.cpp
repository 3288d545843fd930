// SPDX-License-Identifier: Apache-2.0
// Faults while ranks save together: every rank gets the same error, in time; the previous checkpoint stays whole, and
// nothing is left beside it. Refusals before a save are in save_refusals_test.cpp; loads are in load_faults_test.cpp.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fabric.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>

#include "problems_of.hpp"

import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr save_phase phases[] = {save_phase::describe, save_phase::stage, save_phase::write, save_phase::finish,
                                 save_phase::commit};

// Saves one state, then another whose save fails in `failing`, then loads the first. Each step has a new communicator,
// because the failing save may poison its own.
void survives(const std::string& name, const std::vector<std::int32_t>& sizes,
              const std::function<std::string(any_communicator&, const fs::path&, rows&)>& failing) {
  const watchdog dog(300s);
  const fabric::rank_folder folder(name);
  const fs::path checkpoint = folder.path / "step";
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t size : sizes) {
      if (std::find(kind.sizes.begin(), kind.sizes.end(), size) == kind.sizes.end()) continue;
      INFO(kind.name << " with " << size << " ranks");
      const auto run = [&](const std::function<std::string(any_communicator&)>& step) {
        return kind.run(size, [&](void* comm) { return step(*static_cast<any_communicator*>(comm)); });
      };
      REQUIRE(run([&](any_communicator& comm) {
                rows old(comm.rank(), comm.size(), 7);
                return text_of(problems_of(save(checkpoint, old.state, comm, {.overwrite = true})));
              }) == "");
      REQUIRE(run([&](any_communicator& comm) {
                rows now(comm.rank(), comm.size(), 8);
                return failing(comm, checkpoint, now);
              }) == "");
      REQUIRE(run([&](any_communicator& comm) -> std::string {
                rows loaded(comm.rank(), comm.size(), 0);
                const auto report = load(checkpoint, loaded.state, comm);
                if (!report) return text_of(report.error().problems());
                for (const std::int32_t value : loaded.memory)
                  if (value != 7) return "the previous checkpoint has changed";
                return entries(folder.path) == 1 ? "" : "something was left beside the checkpoint";
              }) == "");
    }
}

}  // namespace

TEST_CASE("a rank that fails at any phase fails the save on every rank, and the previous checkpoint stays") {
  for (const save_phase phase : phases)
    for (const bool is_last : {false, true}) {
      if (phase == save_phase::commit && is_last) continue;  // only rank 0 commits
      for (const bool throws : {false, true}) {
        INFO("phase " << static_cast<int>(phase) << (is_last ? ", last rank" : ", rank 0")
                      << (throws ? ", throws" : ""));
        survives("phase", {1, 2, 4}, [&](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
          const std::int32_t victim = is_last ? comm.size() - 1 : 0;
          rank_save_options options{.overwrite = true, .within = 30s};
          options.before = [&](save_phase now) -> result<void> {
            if (now != phase || comm.rank() != victim) return {};
            if (throws) throw std::runtime_error("the fault");
            return fail(errc::io, "the fault");
          };
          const auto report = save(to, mine.state, comm, options);
          if (std::string wrong = must_say(problems_of(report), {"the fault", "(rank " + std::to_string(victim) + ")"});
              !wrong.empty())
            return wrong;
          return comm.all_gather({}, {.within = 30s}) ? "" : "the communicator is not usable any more";
        });
      }
    }
}

TEST_CASE("a rank that stops taking part at any phase is noticed at the deadline by all others") {
  for (const save_phase phase : phases)
    for (const bool is_last : {false, true}) {
      if (phase == save_phase::commit && is_last) continue;
      INFO("phase " << static_cast<int>(phase) << (is_last ? ", last rank" : ", rank 0"));
      // Alternates two and three ranks: this test's time is spent waiting.
      const std::int32_t size = (static_cast<int>(phase) + (is_last ? 1 : 0)) % 2 == 0 ? 2 : 3;
      survives("lost", {size}, [&](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
        const std::int32_t victim = is_last ? comm.size() - 1 : 0;
        const bool is_victim = comm.rank() == victim;
        rank_save_options options{.overwrite = true, .within = 200ms};
        options.before = [&](save_phase now) -> result<void> {
          if (now != phase || !is_victim) return {};
          // Acts like a dead rank: it answers nobody until all others have given up.
          const auto until = std::chrono::steady_clock::now() + 600ms;
          while (std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(10ms);
          return {};
        };
        const auto began = std::chrono::steady_clock::now();
        const auto report = save(to, mine.state, comm, options);
        const auto took = std::chrono::steady_clock::now() - began;
        if (report) return "there was no error";
        if (!is_victim && took > 800ms + 5s) return "it took too long";
        return {};
      });
    }
}

TEST_CASE("a save that is cancelled, or whose deadline is over, changes nothing") {
  survives("cancelled", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::stop_source stop;
    stop.request_stop();
    rank_save_options options{.overwrite = true, .within = 30s};
    if (comm.rank() == comm.size() - 1) options.cancel = stop.get_token();
    const auto report = save(to, mine.state, comm, options);
    return must_say(problems_of(report), {"the save was cancelled (rank " + std::to_string(comm.size() - 1) + ")"});
  });
  survives("cancelled-call", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::stop_source stop;
    rank_save_options options{.overwrite = true, .within = 30s};
    options.cancel = stop.get_token();
    options.before = [&](save_phase now) -> result<void> {
      if (now == save_phase::write && comm.rank() == 0) stop.request_stop();
      return {};
    };
    return must_say(problems_of(save(to, mine.state, comm, options)), {"cancelled"});
  });
  survives("cancelled-last", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::stop_source stop;
    rank_save_options options{.overwrite = true, .within = 30s};
    options.cancel = stop.get_token();
    options.hooks.before_commit = [&] {
      if (comm.rank() == comm.size() - 1) stop.request_stop();
    };
    const auto report = save(to, mine.state, comm, options);
    return must_say(problems_of(report), {"the save was cancelled (rank " + std::to_string(comm.size() - 1) + ")"});
  });
  survives("late", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    const auto report = save(to, mine.state, comm, {.overwrite = true, .within = 0ms});
    return report ? "there was no error" : "";
  });
}

TEST_CASE("a file that cannot grow fails the save on every rank") {
  // With threads, the limit is the process's, so it hits every rank; over MPI it hits only the last rank.
  survives("limit", {2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rank_save_options options{.overwrite = true, .within = 30s};
    const bool is_last = comm.rank() == comm.size() - 1;
    if (is_last) {
      const rlimit small{4096, before.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    static_cast<void>(comm.all_gather({}, {.within = 30s}));
    const auto report = save(to, mine.state, comm, options);
    if (is_last) setrlimit(RLIMIT_FSIZE, &before);
    static_cast<void>(comm.all_gather({}, {.within = 30s}));
    return must_say(problems_of(report), {"cannot write", "(rank "});
  });
}

TEST_CASE("an overwrite replaces the checkpoint of other ranks whole, and nothing of it stays") {
  const fabric::rank_folder folder("replace");
  const fs::path checkpoint = folder.path / "step";
  for (const std::int32_t ranks : {4, 2, 3, 1})
    on_ranks({ranks}, [&](any_communicator& comm) -> std::string {
      rows mine(comm.rank(), comm.size(), ranks);
      const auto report = save(checkpoint, mine.state, comm, {.overwrite = true, .within = 30s});
      if (!report) return text_of(report.error().problems());
      static_cast<void>(comm.all_gather({}, {.within = 30s}));
      const auto expected = static_cast<std::size_t>(comm.size()) + 2;  // .metadata and the checksums
      if (entries(checkpoint) != expected) return "the folder has " + std::to_string(entries(checkpoint)) + " files";
      return entries(folder.path) == 1 ? "" : "something was left beside the checkpoint";
    });
}

TEST_CASE("a save in the background writes what was there when it was started") {
  const fabric::rank_folder folder("background");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    {
      auto saving = start_save(checkpoint, mine.state, comm, {.overwrite = true, .within = 30s});
      if (!saving) return to_string(saving.error());
      std::fill(mine.memory.begin(), mine.memory.end(), 6);
      if (!saving->wait()) return text_of(saving->wait().error().problems());
      if (!saving->done()) return "it is not done after wait";
    }
    const auto report = load(checkpoint, mine.state, comm, {.within = 30s});
    if (!report) return text_of(report.error().problems());
    for (const std::int32_t value : mine.memory)
      if (value != 5) return "another value";
    // An invalid input is reported at once, a later fault by `wait`.
    rows bad(comm.rank(), comm.size(), 5);
    bad.tensor().parts.clear();
    const auto refused = start_save(checkpoint, bad.state, comm);
    if (refused || refused.error().code != errc::gap) return "the gap was not refused";
    rank_save_options options{.overwrite = true, .within = 30s};
    options.before = [&](save_phase now) -> result<void> {
      if (now == save_phase::write && comm.rank() == comm.size() - 1) return fail(errc::io, "the fault");
      return {};
    };
    auto failing = start_save(checkpoint, mine.state, comm, options);
    if (!failing) return to_string(failing.error());
    return must_say(problems_of(failing->wait()), {"the fault (rank " + std::to_string(comm.size() - 1) + ")"});
  });
}
