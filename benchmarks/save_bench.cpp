// SPDX-License-Identifier: Apache-2.0
// Ranks (threads) that save and load together: seconds of each call, the median of the runs.
//   shardmesh_save_bench FOLDER RANKS MIB RUNS       MIB: of the whole state, half of it sharded, half replicated
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.collective_checkpoint;

using namespace shardmesh;

namespace {

using clock_type = std::chrono::steady_clock;

constexpr std::int64_t tensors = 32, width = 1024;

// Half of the tensors by rows, half whole on every rank.
held_state make_state(std::vector<host_tensor>& memory, const any_communicator& comm, std::int64_t rows) {
  held_state held;
  for (std::int64_t t = 0; t < tensors; ++t) {
    const box whole{{0, 0}, {rows, width}};
    const std::int64_t first = rows * comm.rank() / comm.size(), last = rows * (comm.rank() + 1) / comm.size();
    const box mine = t % 2 == 0 ? box{{first, 0}, {last - first, width}} : whole;
    memory.push_back(host_tensor::make(dtype::float32, mine.sizes).value());
    std::fill(memory.back().bytes().begin(), memory.back().bytes().end(), static_cast<std::byte>(t + 1));
    held.tensors.push_back(
        {{"w", t}, {rows, width}, dtype::float32, {{mine, adapter<host_tensor>::view(memory.back())}}});
  }
  return held;
}

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::filesystem::path folder = argv[1];
  const std::int64_t rows = std::atoll(argv[3]) * 1024 * 1024 / 4 / width / tensors;
  const int runs = std::atoi(argv[4]);
  std::filesystem::create_directories(folder);
  const auto done = run_ranks(std::atoi(argv[2]), [&](any_communicator& comm) -> result<void> {
    std::vector<host_tensor> memory;
    held_state held = make_state(memory, comm, rows);
    const auto measure = [&](const char* name, function_ref<result<void>(double&)> call) -> result<void> {
      std::vector<double> seconds;
      for (int run = 0; run < runs; ++run) {
        if (auto together = comm.all_gather({}, {}); !together) return std::move(together).error();
        const auto began = clock_type::now();
        double now = -1;
        if (auto called = call(now); !called) return called;
        seconds.push_back(now >= 0 ? now : std::chrono::duration<double>(clock_type::now() - began).count());
      }
      if (comm.rank() == 0) std::printf("%s %.4f\n", name, median(std::move(seconds)));
      return {};
    };
    const auto outcome = [](const std::vector<error>& problems) -> result<void> {
      if (problems.empty()) return {};
      return problems.front();
    };
    for (const bool durable : {true, false}) {
      const rank_save_options options{.saving = {.output = {.overwrite = true, .durable = durable}, .threads = 1}};
      auto saved = measure(durable ? "save" : "save-not-durable",
                           [&](double&) { return outcome(save(folder / "step", held, comm, options).problems); });
      if (!saved) return saved;
      auto started = measure(durable ? "start_save" : "start_save-not-durable", [&](double& now) -> result<void> {
        const auto began = clock_type::now();
        auto saving = start_save(folder / "step", held, comm, options);
        now = std::chrono::duration<double>(clock_type::now() - began).count();
        if (!saving) return saving.error();
        return outcome(saving->wait().problems);
      });
      if (!started) return started;
    }
    for (const auto& [name, sharing] :
         {std::pair("load-each-rank", read_sharing::each_rank), std::pair("load-group", read_sharing::group)}) {
      auto loaded = measure(name, [&](double&) {
        return outcome(load(folder / "step", held, comm, {.loading = {.threads = 1}, .sharing = sharing}).problems);
      });
      if (!loaded) return loaded;
    }
    return {};
  });
  if (done) return 0;
  std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return 1;
}
