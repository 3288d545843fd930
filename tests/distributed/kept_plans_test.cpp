// SPDX-License-Identifier: Apache-2.0
// Saves that use the plan of the save before write the same files as saves that make a new plan, whatever has changed
// in between. Over every communicator.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <fabric.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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
import shardmesh.test.holdings;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
using holdings::boxes_of_ranks;
using holdings::holding;
using holdings::tensor_model;
namespace fs = std::filesystem;

namespace {

// The state of all ranks in one step of a loop, without the elements.
struct loop_state {
  std::vector<tensor_model> models;
  std::vector<boxes_of_ranks> boxes;  // per tensor
  std::size_t version = 0;            // of the elements
  std::int64_t number = 1;            // the value of an object on every rank
  std::size_t text_length = 5;        // of an object on one rank

  loop_state(dice& roll, std::int32_t ranks) : models(holdings::random_models(roll)) {
    for (const tensor_model& model : models) boxes.push_back(drawn_boxes(roll, model, ranks));
  }

  // A state has no empty boxes.
  static boxes_of_ranks drawn_boxes(dice& roll, const tensor_model& model, std::int32_t ranks) {
    boxes_of_ranks drawn = holdings::random_boxes(roll, model.shape, ranks);
    for (auto& of_rank : drawn) std::erase_if(of_rank, [](const box& where) { return where.is_empty(); });
    return drawn;
  }

  // Changes values, and sometimes what a plan depends on. Returns whether the plan can be kept.
  bool advance(dice& roll, std::int32_t ranks) {
    ++version;
    ++number;
    const std::vector<boxes_of_ranks> before = boxes;
    const std::size_t length_before = text_length;
    if (roll.one_in(3))
      for (std::size_t t = 0; t < models.size(); ++t) boxes[t] = drawn_boxes(roll, models[t], ranks);
    if (roll.one_in(4)) text_length += 1000;
    return boxes == before && text_length == length_before;
  }

  holding part_of(std::int32_t rank, std::int32_t ranks) const {
    holding mine;
    for (std::size_t t = 0; t < models.size(); ++t)
      mine.add(t + 1000 * version, models[t], boxes[t][static_cast<std::size_t>(rank)], true);
    mine.state.objects.push_back({{"number"}, {}, {number}});
    if (rank == ranks - 1)
      mine.state.objects.push_back({{"text"}, {}, {std::string(text_length, static_cast<char>('a' + version % 26))}});
    return mine;
  }
};

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& one : fs::recursive_directory_iterator(folder)) {
    if (!one.is_regular_file()) continue;
    std::ifstream file(one.path(), std::ios::binary);
    files.emplace(fs::relative(one.path(), folder).string(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return files;
}

result<save_report> save_step(const fs::path& folder, const loop_state& state, any_communicator& comm,
                              const rank_save_options& options, bool in_background) {
  holding mine = state.part_of(comm.rank(), comm.size());
  if (!in_background) return save(folder, mine.state, comm, options);
  auto saving = start_save(folder, mine.state, comm, options);
  if (!saving) return saving.error();
  for (std::vector<std::byte>& bytes : mine.memory) bytes.assign(bytes.size(), std::byte{0x55});
  return saving->wait();
}

std::string report_text(const save_report& report) {
  std::string text;
  for (const std::int64_t count : {report.tensors, report.objects, report.bytes, report.files, report.excluded,
                                   report.skipped_objects, report.referred_bytes})
    text += std::to_string(count) + " ";
  for (const std::string& note : report.notes) text += "\n" + note;
  return text;
}

[[nodiscard]] std::string run_loop(const fs::path& folder, std::uint64_t seed, any_communicator& comm) {
  dice roll(seed);
  loop_state state(roll, comm.size());
  rank_save_options options{.skip_objects = roll.one_in(4), .lowest_rank_objects = roll.one_in(2), .within = 60s};
  if (roll.one_in(2)) options.selection.cast.push_back(parse_cast_rule("bfloat16").value());
  options.selection.allow_unused = true;
  const save_plan_cache plans = save_plan_cache::make();
  std::int64_t reuses = 0;
  for (int step = 0; step < 6; ++step) {
    if (step > 0 && state.advance(roll, comm.size())) ++reuses;
    const std::string name = std::to_string(step);
    options.previous.clear();
    if (step > 0 && options.selection.cast.empty() && roll.one_in(2))
      options.previous = folder / ("plain-" + std::to_string(step - 1));
    const bool in_background = roll.one_in(2);
    options.plans = {};
    const auto plain = save_step(folder / ("plain-" + name), state, comm, options, in_background);
    if (!plain) return text_of(plain.error().problems());
    options.plans = plans;
    const auto kept = save_step(folder / ("kept-" + name), state, comm, options, in_background);
    if (!kept) return text_of(kept.error().problems());
    if (report_text(*kept) != report_text(*plain))
      return "the reports of step " + name + " differ: " + report_text(*kept);
    if (plans.reuses() != reuses)
      return "step " + name + ": " + std::to_string(plans.reuses()) + " plans were reused, not " +
             std::to_string(reuses);
    if (comm.rank() == 0 && files_of(folder / ("kept-" + name)) != files_of(folder / ("plain-" + name)))
      return "the files of step " + name + " differ";
  }
  return {};
}

}  // namespace

TEST_CASE("saves that keep their plan write the files of saves that make a new plan") {
  const watchdog dog(500s);
  std::uint64_t number = 0;
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      if (ranks > 4 && ranks != 7) continue;
      for (int round = 0; round < fabric::rounds(3); ++round) {
        const std::uint64_t seed = fabric::seed() + 1000 * ++number;
        INFO(kind.name << ", " << ranks << " ranks, SHARDMESH_SEED=" << fabric::seed() << " round " << number);
        const fabric::rank_folder folder("plans-" + std::to_string(number));
        REQUIRE(kind.run(ranks, [&](void* handle) {
          return run_loop(folder.path, seed, *static_cast<any_communicator*>(handle));
        }) == "");
      }
    }
}

TEST_CASE("a kept plan does not hide that ranks hold different values of an object") {
  const fabric::rank_folder folder("plan-objects");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path step = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 1);
    mine.state.objects.push_back({{"number"}, {}, {std::int64_t{1}}});
    rank_save_options options{.overwrite = true, .within = 30s, .plans = save_plan_cache::make()};
    const auto save_with = [&](std::int64_t number) {
      mine.state.objects.front().leaves.front() = number;
      return save(step, mine.state, comm, options);
    };
    if (const auto first = save_with(1); !first) return text_of(first.error().problems());
    const auto different = save_with(comm.rank() == comm.size() - 1 ? 3 : 2);
    const std::string ranks = "(ranks 0, " + std::to_string(comm.size() - 1) + ")";
    if (std::string wrong =
            must_say(problems_of(different), {"number: ranks hold different values of an object", ranks});
        !wrong.empty())
      return wrong;
    if (options.plans.reuses() != 0) return "the plan was used";
    if (const auto equal = save_with(4); !equal) return text_of(equal.error().problems());
    if (options.plans.reuses() != 1) return "the plan was not used again";
    return {};
  });
}

TEST_CASE("a kept plan is used for other memory, but not for another dtype, shape, box, or option of equal size") {
  const fabric::rank_folder folder("plan-changes");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const std::string size = std::to_string(comm.size());
    const std::int64_t first_row = comm.rank() * rows::per_rank;
    rows mine(comm.rank(), comm.size(), 1);
    const rows other(comm.rank(), comm.size(), 2);
    rank_save_options options{.overwrite = true, .within = 30s, .plans = save_plan_cache::make()};
    rank_save_options plain = options;
    plain.plans = {};
    std::int64_t reuses = 0;
    // Saves the state with the kept plan and without one, and compares the files.
    const auto problem_of = [&](const std::string& name, bool is_repeated) -> std::string {
      const fs::path kept_step = folder.path / (name + "-kept-" + size), plain_step = folder.path / (name + "-" + size);
      plain.durable = options.durable;
      const auto kept = save(kept_step, mine.state, comm, options);
      if (!kept) return text_of(kept.error().problems());
      const auto expected = save(plain_step, mine.state, comm, plain);
      if (!expected) return text_of(expected.error().problems());
      if (is_repeated) ++reuses;
      if (options.plans.reuses() != reuses) return name + ": " + std::to_string(options.plans.reuses()) + " reuses";
      if (comm.rank() == 0 && files_of(kept_step) != files_of(plain_step)) return name + ": other files";
      return {};
    };
    std::string wrong = problem_of("first", false);
    mine.memory = std::vector<std::int32_t>(other.memory);  // at another place
    mine.part().memory = mine.view();
    if (wrong.empty()) wrong = problem_of("memory", true);
    mine.tensor().type = mine.part().memory.type = dtype::float32;
    if (wrong.empty()) wrong = problem_of("dtype", false);
    mine.tensor().shape = {comm.size() * rows::per_rank, 2, rows::width / 2};
    mine.part().where = {{first_row, 0, 0}, {rows::per_rank, 2, rows::width / 2}};
    mine.part().memory.sizes = mine.part().where.sizes;
    mine.part().memory.strides = {rows::width, rows::width / 2, 1};
    if (wrong.empty()) wrong = problem_of("shape", false);
    if (comm.rank() == comm.size() - 1) {
      local_part second = mine.part();
      mine.part().where.sizes[0] = mine.part().memory.sizes[0] = second.where.sizes[0] = second.memory.sizes[0] =
          rows::per_rank / 2;
      second.where.offsets[0] += rows::per_rank / 2;
      second.memory.data += rows::per_rank / 2 * rows::width * std::int64_t{sizeof(float)};
      mine.tensor().parts.push_back(second);
    }
    if (wrong.empty()) wrong = problem_of("box", false);
    options.durable = false;
    if (wrong.empty()) wrong = problem_of("option", false);
    if (wrong.empty()) wrong = problem_of("again", true);
    return wrong;
  });
}

TEST_CASE("ranks of which only some have a cache of plans get an error that says so") {
  const fabric::rank_folder folder("plan-caches");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    rank_save_options options{.within = 30s};
    if (comm.rank() == 0) options.plans = save_plan_cache::make();
    const auto report = save(folder.path / "step", mine.state, comm, options);
    return must_say(problems_of(report), {"ranks disagree on 1 of 5 checkpoint options", "plans kept true on rank 0",
                                          "plans kept false on rank"});
  });
}
