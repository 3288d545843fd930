// SPDX-License-Identifier: Apache-2.0
// Errors of several ranks name the call, the ranks, and the last action of the other ranks. They do not blame innocent
// ranks.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <on_ranks.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>
import shardmesh.collective_checkpoint;

using namespace shardmesh;

namespace {

constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

call_options soon(std::chrono::milliseconds time) {
  call_options made;
  made.within = time;
  return made;
}

// Returns "" if the text contains all of `parts`.
std::string lacks(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) return "'" + part + "' is not in '" + text + "'";
  return {};
}

distribution rows_of(std::int32_t ranks, const std::vector<std::int64_t>& held) {
  std::vector<fragment> fragments;
  for (const std::int64_t row : held) {
    fragment f;
    f.where = {{row, 0}, {1, 4}};
    f.owner = static_cast<owner_id>(row % ranks);
    f.local_offsets = {row / ranks, 0};
    fragments.push_back(f);
  }
  return distribution::from_fragments({4, 4}, fragments, owner_space::ranks).value();
}

}  // namespace

TEST_CASE("ranks in different calls are told who called what, and the communicator stays usable") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    if (comm.size() == 1) return {};
    local_state nothing;
    const time_limit end = std::chrono::seconds(20);
    const std::filesystem::path nowhere = std::filesystem::temp_directory_path() / "no_checkpoint_is_here";
    const auto call_of_rank = [&]() -> result<void> {
      if (comm.rank() == 0) return save(nowhere, nothing, comm, {.within = end}).transform([](auto&&) {});
      return load(nowhere, nothing, comm, {.within = end}).transform([](auto&&) {});
    };
    const result<void> done = call_of_rank();
    if (done) return "there was no error";
    std::string others = "rank 1 called load";
    if (comm.size() > 2) {
      others = "ranks 1";
      for (std::int32_t rank = 2; rank < comm.size(); ++rank) others += ", " + std::to_string(rank);
      others += " called load";
    }
    if (done.error().code != errc::disagreement) return to_string(done.error());
    if (std::string wrong = lacks(to_string(done.error()), {"different calls: rank 0 called save, " + others});
        !wrong.empty())
      return wrong;
    return comm.all_gather({}, {.within = end}) ? "" : "the communicator is poisoned";
  });
}

TEST_CASE("a deadline says the call, who did not come, and what that rank did last") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    if (comm.size() == 1) return {};
    const std::int32_t absent = comm.size() - 1;
    const auto met =
        agree(comm, std::span<const agreement_record>(), {}, soon(std::chrono::seconds(20)).named("warm_up"));
    if (!met) return to_string(met.error());
    if (comm.rank() == absent) {
      while (comm.start_exchange({}, {}, {})) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return {};
    }
    // Long enough for the other ranks on a busy machine, so that only the absent one has not come.
    const auto done = redistribute(std::span<const tensor_move>(), comm, {.call = soon(std::chrono::seconds(1))});
    if (done) return "there was no error";
    const std::string text = to_string(done.error());
    if (done.error().code != errc::deadline_exceeded) return text;
    const std::string rank = "rank " + std::to_string(absent);
    return lacks(text, {" waiting for ", "of redistribute", rank, "of warm_up"});
  });
}

TEST_CASE("a gap names its box and blames no rank, though all ranks report it") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const tensor_move one{
        "w", {rows_of(n, {0, 1, 3}), dtype::float32, {}}, {rows_of(n, {0, 1, 2, 3}), dtype::float32, {}}};
    const auto done = redistribute(std::span(&one, 1), comm, {.call = soon(std::chrono::seconds(20))});
    if (done) return "there was no error";
    const std::string text = to_string(done.error());
    if (done.error().code != errc::gap || !done.error().ranks.empty()) return text;
    return lacks(text, {"[2:3, 0:4)"});
  });
}

TEST_CASE("a gap that only one rank plans is no fault of that rank") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const std::vector<std::int64_t> held =
        comm.rank() == n - 1 ? std::vector<std::int64_t>{0, 1, 3} : std::vector<std::int64_t>{0, 1, 2, 3};
    const tensor_move one{"w", {rows_of(n, held), dtype::float32, {}}, {rows_of(n, {0, 1, 2, 3}), dtype::float32, {}}};
    const auto done = redistribute(std::span(&one, 1), comm, {.call = soon(std::chrono::seconds(20))});
    if (done) return "there was no error";
    return done.error().code == errc::gap && done.error().ranks.empty() ? "" : to_string(done.error());
  });
}
