// SPDX-License-Identifier: Apache-2.0
// Ranks that save chains of incremental checkpoints together, against the model of `holdings`: random tensors change
// from step to step, and so do the layouts. Over every communicator.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <fabric.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>

#include "problems_of.hpp"

import shardmesh.collective_checkpoint;
import shardmesh.dcp;
import shardmesh.test.holdings;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

using holdings::boxes_of_ranks;
using holdings::holding;
using holdings::random_boxes;
using holdings::random_models;
using holdings::tensor_model;

// The state of all ranks in one step. Version v of tensor t has the elements of the model number t + 1000 v.
struct step_state {
  std::vector<tensor_model> models;
  std::vector<std::size_t> versions;
  std::vector<boxes_of_ranks> boxes;  // per tensor

  step_state(dice& roll, std::int32_t ranks) : models(random_models(roll)), versions(models.size(), 0) {
    for (const tensor_model& model : models) boxes.push_back(random_boxes(roll, model.shape, ranks));
  }
  // Returns the bytes that are certainly unchanged.
  std::int64_t advance(dice& roll, std::int32_t ranks) {
    std::int64_t unchanged = 0;
    for (std::size_t t = 0; t < models.size(); ++t) {
      const bool changes = roll.one_in(2), moves = roll.one_in(3);
      if (changes) ++versions[t];
      if (moves) boxes[t] = random_boxes(roll, models[t].shape, ranks);
      if (!changes && !moves) unchanged += size_bytes(models[t].type, box::whole(models[t].shape).volume()).value();
    }
    return unchanged;
  }
  std::vector<std::size_t> numbers() const {
    std::vector<std::size_t> made;
    for (std::size_t t = 0; t < models.size(); ++t) made.push_back(t + 1000 * versions[t]);
    return made;
  }
  holding part_of(std::int32_t rank, const std::vector<boxes_of_ranks>& places, bool filled) const {
    holding mine;
    for (std::size_t t = 0; t < models.size(); ++t)
      mine.add(numbers()[t], models[t], places[t][static_cast<std::size_t>(rank)], filled);
    return mine;
  }
};

// Saves one step; with `in_background`, overwrites the state's memory as soon as `start_save` has returned.
result<save_report> save_step(const fs::path& folder, holding& mine, any_communicator& comm,
                              const rank_save_options& options, bool in_background) {
  if (!in_background) return save(folder, mine.state, comm, options);
  auto saving = start_save(folder, mine.state, comm, options);
  if (!saving) return saving.error();
  for (std::vector<std::byte>& bytes : mine.memory) bytes.assign(bytes.size(), std::byte{0x55});
  return saving->wait();
}

std::string load_step(const fs::path& folder, const step_state& state, dice& roll, any_communicator& comm) {
  std::vector<boxes_of_ranks> places;
  for (const tensor_model& model : state.models) places.push_back(random_boxes(roll, model.shape, comm.size()));
  holding mine = state.part_of(comm.rank(), places, false);
  const auto report = load(folder, mine.state, comm, {.check = true, .within = 60s});
  if (!report) return text_of(report.error().problems());
  return mine.differences(state.numbers());
}

[[nodiscard]] std::string run_chain(const fs::path& folder, std::uint64_t seed, any_communicator& comm) {
  dice roll(seed);
  step_state state(roll, comm.size());
  std::vector<step_state> states;
  for (std::int64_t step = 0; step < 4; ++step) {
    const std::int64_t unchanged = step == 0 ? 0 : state.advance(roll, comm.size());
    const bool in_background = roll.one_in(2);
    holding mine = state.part_of(comm.rank(), state.boxes, true);
    rank_save_options options{.within = 60s};
    if (step > 0) options.previous = folder / ("step-" + std::to_string(step - 1));
    const fs::path now = folder / ("step-" + std::to_string(step));
    const auto report = save_step(now, mine, comm, options, in_background);
    if (!report) return text_of(report.error().problems());
    if (report->referred_bytes < unchanged)
      return std::to_string(report->referred_bytes) + " bytes are referred to, not " + std::to_string(unchanged);
    if (report->written_bytes() < 0) return "more bytes are referred to than there are";
    states.push_back(state);
  }
  for (std::size_t step = 0; step < states.size(); ++step) {
    const std::string wrong = load_step(folder / ("step-" + std::to_string(step)), states[step], roll, comm);
    if (!wrong.empty()) return "step " + std::to_string(step) + ": " + wrong;
  }
  return {};
}

}  // namespace

TEST_CASE("chains of incremental saves hold every step, whatever changes and however it is cut") {
  const watchdog dog(500s);
  std::uint64_t number = 0;
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      if (ranks > 4) continue;
      for (int round = 0; round < fabric::rounds(4); ++round) {
        const std::uint64_t seed = fabric::seed() + 1000 * ++number;
        INFO(kind.name << ", " << ranks << " ranks, SHARDMESH_SEED=" << fabric::seed() << " round " << number);
        const fabric::rank_folder folder("chain-" + std::to_string(number));
        const std::string wrong = kind.run(ranks, [&](void* handle) -> std::string {
          return run_chain(folder.path, seed, *static_cast<any_communicator*>(handle));
        });
        REQUIRE(wrong == "");
        for (int step = 0; step < 4; ++step) {
          const auto reader = open_checkpoint(folder.path / ("step-" + std::to_string(step))).value();
          REQUIRE(text_of(verify(*reader).value().problems) == "");
        }
      }
    }
}

TEST_CASE("every rank reports the same bytes, and a rank without changes writes no file") {
  const fabric::rank_folder folder("unchanged");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    const fs::path of_size = folder.path / ("of-" + std::to_string(comm.size()));
    if (comm.rank() == 0) {
      fs::remove_all(of_size);  // of another communicator
      fs::create_directory(of_size);
    }
    if (!comm.all_gather({}, {.within = 30s})) return "the communicator failed";
    if (const auto first = save(of_size / "step-1", mine.state, comm, {.within = 30s}); !first)
      return text_of(first.error().problems());
    if (comm.rank() == 1) mine.memory.front() = 99;
    const auto report = save(of_size / "step-2", mine.state, comm, {.within = 30s, .previous = of_size / "step-1"});
    if (!report) return text_of(report.error().problems());
    const std::int64_t of_rank = rows::per_rank * rows::width * 4;
    if (report->bytes != comm.size() * of_rank) return std::to_string(report->bytes) + " bytes";
    if (report->written_bytes() != of_rank) return std::to_string(report->written_bytes()) + " bytes were written";
    if (report->files != 1) return std::to_string(report->files) + " files";
    if (dcp::references_of(of_size / "step-2").value() != std::vector<std::string>{"step-1"}) return "other references";
    return fs::exists(of_size / "step-2" / "__1_0.distcp") ? "" : "rank 1 has no file";
  });
}

TEST_CASE("if a rank cannot read the previous checkpoint, or names another one, every rank gets the error") {
  const fabric::rank_folder folder("bad-previous");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    const auto refused = [&](const rank_save_options& options, const std::vector<std::string>& texts) -> std::string {
      const auto report = save(folder.path / "step", mine.state, comm, options);
      if (std::string wrong = must_say(problems_of(report), texts); !wrong.empty()) return wrong;
      if (!comm.all_gather({}, {.within = 30s})) return "the communicator is not usable any more";
      return fs::is_empty(folder.path) ? "" : "something was written";
    };
    rank_save_options options{.within = 30s, .previous = folder.path / "missing"};
    if (std::string wrong = refused(options, {"missing", "is not a folder", "or save without `previous`"});
        !wrong.empty())
      return wrong;
    options.format = target_format::safetensors;
    if (std::string wrong = refused(options, {"only a DCP folder can refer to a previous checkpoint"}); !wrong.empty())
      return wrong;
    options.format = target_format::dcp;
    if (comm.rank() == 1) options.previous.clear();
    return refused(options, {"ranks disagree on 1 of 5 checkpoint options", "(previous)"});
  });
}
