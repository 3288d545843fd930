// SPDX-License-Identifier: Apache-2.0
// When there are too many problems, an error keeps the first hundred and counts the rest, equally on every rank.
#include <unistd.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
import shardmesh.collective_checkpoint;

using namespace shardmesh;

TEST_CASE("a save of tensors with gaps and a load of missing ones name a hundred and count the rest") {
  const auto folder = std::filesystem::temp_directory_path() / ("shardmesh-many-" + std::to_string(::getpid()));
  const std::int32_t ranks = 3;
  std::vector<std::string> wrong(ranks);
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    // 130 tensors of 4 rows, whose last row no rank holds; and one complete tensor.
    host_tensor rows = host_tensor::make(dtype::float32, {1, 2}).value();
    local_state held;
    for (int i = 0; i < 130; ++i) {
      local_state_tensor one;
      one.where = path{"t" + std::to_string(i)};
      one.shape = {4, 2};
      one.type = dtype::float32;
      one.parts.push_back({box{{comm.rank(), 0}, {1, 2}}, adapter<host_tensor>::view(rows)});
      held.tensors.push_back(one);
    }
    const auto saved = save(folder, held, comm);
    const auto is_gap = [](const error& e) { return e.code == errc::gap && !e.key.empty() && e.boxes.size() == 1; };
    if (saved) return fail(errc::invalid_argument, "tensors with gaps were saved");
    const std::vector<error> gaps = saved.error().problems();
    if (gaps.size() != 100 || saved.error().problem_count() != 130 || !std::all_of(gaps.begin(), gaps.end(), is_gap))
      wrong[static_cast<std::size_t>(comm.rank())] =
          std::to_string(gaps.size()) + " gaps are named and " + std::to_string(saved.error().more) + " counted";
    if (!to_string(saved.error()).ends_with(" (and 129 other problems)"))
      wrong[static_cast<std::size_t>(comm.rank())] += to_string(saved.error());

    // One tensor is saved correctly, and 131 are wanted.
    local_state whole;
    local_state_tensor only = held.tensors.front();
    only.shape = {ranks, 2};
    whole.tensors.push_back(only);
    if (auto kept = save(folder, whole, comm); !kept) return std::move(kept).error();
    held.tensors.front() = only;
    for (int i = 130; i < 132; ++i)
      held.tensors.push_back(held.tensors.back()), held.tensors.back().where = path{"t" + std::to_string(i)};
    const auto loaded = load(folder, held, comm);
    const auto is_missing = [](const error& e) { return e.code == errc::missing_key && !e.key.empty(); };
    if (loaded) return fail(errc::invalid_argument, "missing tensors were loaded");
    const std::vector<error> keys = loaded.error().problems();
    if (keys.size() != 100 || loaded.error().problem_count() != 131 ||
        !std::all_of(keys.begin(), keys.end(), is_missing))
      wrong[static_cast<std::size_t>(comm.rank())] +=
          std::to_string(keys.size()) + " keys are missing and " + std::to_string(loaded.error().more) + " counted";
    return {};
  });
  CHECK(ran);
  CHECK(wrong == std::vector<std::string>(ranks));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}
