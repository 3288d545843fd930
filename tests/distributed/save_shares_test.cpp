// SPDX-License-Identifier: Apache-2.0
// Shares of a DCP save: rank 0 plans, and each other rank knows only its own entries. The result is compared with that
// of a safetensors save, which every rank plans from the descriptions of all.
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
#include <span>
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

namespace {

// This rank's part of random tensors. Each rank lists its tensors in an order of its own, and leaves out every other
// tensor of which it holds nothing. Odd ranks have the objects.
holding random_part(dice& roll, std::int32_t rank, std::int32_t ranks) {
  const std::vector<tensor_model> models = holdings::random_models(roll);
  holding mine;
  for (std::size_t t = 0; t < models.size(); ++t) {
    const auto boxes = holdings::random_boxes(roll, models[t].shape, ranks)[static_cast<std::size_t>(rank)];
    const bool is_listed = (static_cast<std::size_t>(rank) + t) % 2 == 0;
    if (!boxes.empty() || is_listed) mine.add(t, models[t], boxes, true);
  }
  std::vector<local_state_tensor>& tensors = mine.state.tensors;
  if (!tensors.empty()) std::rotate(tensors.begin(), tensors.begin() + rank % std::ssize(tensors), tensors.end());
  if (rank % 2 == 1) mine.state.objects = holdings::objects();
  return mine;
}

selection_options random_selection(dice& roll) {
  selection_options made;
  made.allow_unused = true;
  if (roll.one_in(2)) made.cast.push_back(parse_cast_rule("bfloat16").value());
  if (roll.one_in(2)) made.rename.push_back(parse_rename_rule("layers\\.(.*)=m.\\1").value());
  if (roll.one_in(4)) made.skip.push_back(key_pattern::compile("layers\\.0\\..*").value());
  return made;
}

std::string counts_of(const save_report& report, bool with_files) {
  std::string text;
  for (const std::int64_t count :
       {report.tensors, report.objects, report.bytes, report.excluded, report.skipped_objects, report.referred_bytes})
    text += std::to_string(count) + " ";
  if (!with_files) return text;
  text += std::to_string(report.files);
  for (const std::string& note : report.notes) text += "\n" + note;
  return text;
}

// Returns the problem if not all ranks have this text.
std::string same_on_all(any_communicator& comm, const std::string& text) {
  const auto all = comm.all_gather(std::as_bytes(std::span(text)), {.within = 60s});
  if (!all) return to_string(all.error());
  for (const std::vector<std::byte>& other : *all)
    if (std::string(reinterpret_cast<const char*>(other.data()), other.size()) != text)
      return "the ranks have different answers";
  return {};
}

std::string compared(const fs::path& one, const fs::path& other) {
  const auto left = open_checkpoint(one).value(), right = open_checkpoint(other).value();
  if (std::string problems = text_of(verify(*left).value().problems); !problems.empty()) return problems;
  const diff_report report = diff(*left, *right).value();
  std::string wrong = text_of(report.problems);
  for (const key_difference& difference : report.differences) wrong += difference.key + " differs; ";
  return wrong;
}

std::string save_both(const fs::path& folder, std::uint64_t seed, any_communicator& comm) {
  dice roll(seed);
  const holding mine = random_part(roll, comm.rank(), comm.size());
  rank_save_options options{.selection = random_selection(roll), .skip_objects = roll.one_in(4), .within = 60s};
  const auto planned_by_root = save(folder / "dcp", mine.state, comm, options);
  if (!planned_by_root) return text_of(planned_by_root.error().problems());
  options.format = target_format::safetensors;
  const auto planned_by_all = save(folder / "one.safetensors", mine.state, comm, options);
  if (!planned_by_all) return text_of(planned_by_all.error().problems());
  if (counts_of(*planned_by_root, false) != counts_of(*planned_by_all, false)) return "the reports differ";
  for (const save_report* report : {&*planned_by_root, &*planned_by_all})
    if (std::string wrong = same_on_all(comm, counts_of(*report, true)); !wrong.empty()) return wrong;
  if (comm.rank() != 0) return {};
  return compared(folder / "dcp", folder / "one.safetensors");
}

}  // namespace

TEST_CASE("ranks that know only their shares save the same entries as ranks that all know everything") {
  const watchdog dog(500s);
  std::uint64_t number = 0;
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      if (ranks > 4 && ranks != 7) continue;
      for (int round = 0; round < fabric::rounds(6); ++round) {
        const std::uint64_t seed = fabric::seed() + 1000 * ++number;
        INFO(kind.name << ", " << ranks << " ranks, SHARDMESH_SEED=" << fabric::seed() << " round " << number);
        const fabric::rank_folder folder("shares-" + std::to_string(number));
        REQUIRE(kind.run(ranks, [&](void* handle) {
          return save_both(folder.path, seed, *static_cast<any_communicator*>(handle));
        }) == "");
      }
    }
}

TEST_CASE("a problem that only rank 0 can see reaches every rank as it is, and the communicator stays usable") {
  const fabric::rank_folder folder("verdict");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    // The last rank claims a row of the rank before it.
    if (comm.rank() == comm.size() - 1) mine.part().where.offsets[0] -= 1;
    const auto report = save(folder.path / "step", mine.state, comm, {.within = 30s});
    const std::string last = std::to_string(comm.size() - 1), before = std::to_string(comm.size() - 2);
    if (std::string wrong =
            must_say(problems_of(report), {"w: two ranks hold different boxes that overlap in [",
                                           "(ranks " + before + ", " + last + ")", "w: is held by no rank in ["});
        !wrong.empty())
      return wrong;
    if (report.error().problems().size() != 2) return "another number of problems";
    const std::string text = text_of(report.error().problems());
    if (text.find("(rank 0)") != std::string::npos) return "rank 0 is blamed: " + text;
    if (std::string wrong = same_on_all(comm, text); !wrong.empty()) return wrong;
    return fs::is_empty(folder.path) ? "" : "something was written";
  });
}
