// SPDX-License-Identifier: Apache-2.0
// Safetensors files and Hugging Face folders that ranks write together. They equal, byte for byte, the output of
// `convert` for a DCP folder of the same state, which other suites compare with PyTorch and the safetensors package.
// Also faults during the save, and refusals.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <fabric.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
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

constexpr target_format formats[] = {target_format::safetensors, target_format::hf};

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every file below a folder, by name; for a single file, also the files beside it that share its name.
std::map<std::string, std::string> files_of(const fs::path& path) {
  std::map<std::string, std::string> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files[entry.path().lexically_relative(path).string()] = bytes_of(entry.path());
    return files;
  }
  files["file"] = bytes_of(path);
  const fs::path beside = fs::path(path).replace_extension(".objects.json");
  if (fs::exists(beside)) files["beside"] = bytes_of(beside);
  return files;
}

// Returns "" if both have the same files with the same bytes.
std::string compared(const fs::path& expected, const fs::path& found) {
  const auto a = files_of(expected), b = files_of(found);
  for (const auto& [name, bytes] : a) {
    if (!b.contains(name)) return name + " is missing";
    if (b.at(name) != bytes) return name + " differs";
  }
  return a.size() == b.size() ? "" : "there are further files";
}

std::size_t saved_objects(const fs::path& checkpoint) {
  return open_checkpoint(checkpoint).value()->contents().objects.size();
}

// Waits until all ranks are here.
void meet(any_communicator& comm) {
  comm.all_gather({}, {.within = 60s}).value();
}

}  // namespace

TEST_CASE("safetensors that ranks write together are byte for byte what convert makes of their DCP folder") {
  const watchdog dog(500s);
  std::uint64_t number = 0;
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      if (ranks > 4 && ranks != 7 && ranks != 8) continue;
      for (int round = 0; round < fabric::rounds(3); ++round) {
        const std::uint64_t seed = fabric::seed() + 1000 * ++number;
        INFO(kind.name << ", " << ranks << " ranks, SHARDMESH_SEED=" << fabric::seed() << " round " << number);
        const fabric::rank_folder folder("shared-" + std::to_string(number));
        const std::string wrong = kind.run(ranks, [&](void* handle) -> std::string {
          auto& comm = *static_cast<any_communicator*>(handle);
          dice roll(seed);
          const std::vector<tensor_model> models = holdings::random_models(roll);
          holding mine;
          for (std::size_t t = 0; t < models.size(); ++t) {
            const auto boxes = holdings::random_boxes(roll, models[t].shape, ranks);
            mine.add(t, models[t], boxes[static_cast<std::size_t>(comm.rank())], true);
          }
          if (roll.below(4) != 0 && comm.rank() % 2 == 0) mine.state.objects = holdings::objects();
          rank_save_options options{.within = 60s};
          options.selection.allow_unused = true;
          if (roll.below(2) == 0) options.selection.cast.push_back(parse_cast_rule("bfloat16").value());
          if (roll.below(2) == 0) options.selection.rename.push_back(parse_rename_rule("layers\\.(.*)=m.\\1").value());
          if (roll.below(4) == 0) options.selection.skip.push_back(key_pattern::compile("layers\\.0\\..*").value());
          options.skip_objects = roll.below(4) == 0;
          options.max_shard_bytes = roll.below(3) == 0 ? 0 : 1 + roll.below(2000);
          if (const auto saved = save(folder.path / "dcp", mine.state, comm, {.within = 60s}); !saved)
            return text_of(saved.error().problems());
          for (const target_format to : formats) {
            options.format = to;
            const std::string name = to == target_format::hf ? "hf" : "one.safetensors";
            const auto together = save(folder.path / name, mine.state, comm, options);
            if (!together) return name + ": " + text_of(together.error().problems());
            std::string told;
            if (comm.rank() == 0) {
              auto reader = open_checkpoint(folder.path / "dcp").value();
              const auto expected =
                  convert(*reader, folder.path / ("expected-" + name),
                          {.format = to,
                           .selection = options.selection,
                           .max_shard_bytes =
                               to == target_format::hf ? options.max_shard_bytes : convert_options().max_shard_bytes,
                           .skip_objects = options.skip_objects});
              if (!expected) {
                told = "convert: " + text_of(expected.error().problems());
              } else if (std::tuple(expected->tensors, expected->objects, expected->bytes, expected->files,
                                    expected->excluded, expected->skipped_objects, expected->notes) !=
                         std::tuple(together->tensors, together->objects, together->bytes, together->files,
                                    together->excluded, together->skipped_objects, together->notes)) {
                told = name + ": the reports differ";
              } else {
                told = compared(folder.path / ("expected-" + name), folder.path / name);
                if (!told.empty()) told = name + ": " + told;
              }
              auto ours = open_checkpoint(folder.path / name).value();
              told += text_of(verify(*ours).value().problems);
            }
            meet(comm);
            if (!told.empty()) return told;
          }
          return {};
        });
        REQUIRE(wrong == "");
      }
    }
}

TEST_CASE("a DCP folder that ranks save with a selection is what convert makes of the one without") {
  const watchdog dog(300s);
  const fabric::rank_folder folder("selected");
  on_ranks({1, 3}, [&](any_communicator& comm) -> std::string {
    const fs::path here = folder.path / std::to_string(comm.size());
    dice roll(fabric::seed());
    const tensor_model weight{{"layers", 0, "weight"}, {13, 5}, dtype::float32}, ids{{"ids"}, {7}, dtype::int64};
    holding mine;
    std::size_t number = 0;
    for (const tensor_model& model : {weight, ids})
      mine.add(number++, model,
               holdings::random_boxes(roll, model.shape, comm.size())[static_cast<std::size_t>(comm.rank())], true);
    mine.state.objects = holdings::objects();
    rank_save_options options{.within = 60s};
    if (comm.rank() == 0) fs::remove_all(here), fs::create_directory(here);  // remove another fabric's files
    meet(comm);
    if (const auto all = save(here / "all", mine.state, comm, options); !all) return text_of(all.error().problems());
    options.selection.cast.push_back(parse_cast_rule("float16").value());
    options.selection.rename.push_back(parse_rename_rule("layers\\.0\\.(.*)=first/\\1").value());
    options.selection.skip.push_back(key_pattern::compile("flag|raw").value());
    const auto some = save(here / "some", mine.state, comm, options);
    if (!some) return text_of(some.error().problems());
    std::string told;
    if (comm.rank() == 0) {
      auto reader = open_checkpoint(here / "all").value();
      const auto expected =
          convert(*reader, here / "expected", {.format = target_format::dcp, .selection = options.selection});
      told = expected ? text_of(verify(*open_checkpoint(here / "some").value()).value().problems)
                      : text_of(expected.error().problems());
      // Casts change each rank's share of writing, and so decide which rank writes replicas. Thus files may differ;
      // entries and boxes may not.
      const auto left = open_checkpoint(here / "expected").value(), right = open_checkpoint(here / "some").value();
      const auto told_apart = diff(whole_side(*left), whole_side(*right), {.layout = true}).value();
      told += text_of(told_apart.problems);
      for (const key_difference& one : told_apart.differences) told += one.key + " differs; ";
      if (told_apart.tensors != 2 || told_apart.objects == 0) told += "another number of entries";
      if (some->excluded != 2) told += "another number of excluded entries";
    }
    meet(comm);
    return told;
  });
}

TEST_CASE("a save of shared files that fails at any phase leaves the previous one as it was, and nothing beside it") {
  const watchdog dog(300s);
  for (const target_format to : formats)
    for (const save_phase phase :
         {save_phase::describe, save_phase::stage, save_phase::write, save_phase::finish, save_phase::commit})
      for (const bool is_last : {false, true}) {
        if (phase == save_phase::commit && is_last) continue;
        INFO("format " << static_cast<int>(to) << ", phase " << static_cast<int>(phase) << (is_last ? ", last" : ""));
        const fabric::rank_folder folder("shared-fault");
        const fs::path destination = folder.path / (to == target_format::hf ? "hf" : "one.safetensors");
        on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
          const std::int32_t victim = is_last ? comm.size() - 1 : 0;
          rank_save_options options{.format = to, .overwrite = true, .within = 30s};
          rows old(comm.rank(), comm.size(), 7), now(comm.rank(), comm.size(), 8);
          if (comm.rank() == 0) old.state.objects = now.state.objects = holdings::objects();
          if (const auto saved = save(destination, old.state, comm, options); !saved)
            return text_of(saved.error().problems());
          const auto before = files_of(destination);
          meet(comm);
          options.before = [&](save_phase at) -> result<void> {
            if (at == phase && comm.rank() == victim) throw std::runtime_error("the fault");
            return {};
          };
          const auto report = save(destination, now.state, comm, options);
          if (std::string wrong = must_say(problems_of(report), {"the fault", "(rank " + std::to_string(victim) + ")"});
              !wrong.empty())
            return wrong;
          meet(comm);
          if (files_of(destination) != before) return "the previous checkpoint has changed";
          const std::size_t left = to == target_format::hf ? 1 : 2;  // the objects are beside a file
          return entries(folder.path) == left ? "" : "something was left beside the checkpoint";
        });
      }
}

TEST_CASE("a save of shared files that loses a rank ends at the deadline and leaves the previous one as it was") {
  const watchdog dog(300s);
  for (const target_format to : formats)
    for (const save_phase phase : {save_phase::write, save_phase::finish}) {
      INFO("format " << static_cast<int>(to) << ", phase " << static_cast<int>(phase));
      const fabric::rank_folder folder("shared-lost");
      const fs::path destination = folder.path / (to == target_format::hf ? "hf" : "one.safetensors");
      for (const fabric::kind& kind : fabric::all()) {
        if (std::find(kind.sizes.begin(), kind.sizes.end(), 3) == kind.sizes.end()) continue;
        const auto run = [&](const std::function<std::string(any_communicator&)>& step) {
          return kind.run(3, [&](void* comm) { return step(*static_cast<any_communicator*>(comm)); });
        };
        rank_save_options options{.format = to, .overwrite = true};
        std::map<std::string, std::string> before;  // rank 0's
        REQUIRE(run([&](any_communicator& comm) {
                  rows old(comm.rank(), comm.size(), 7);
                  const auto saved = save(destination, old.state, comm, options);
                  if (comm.rank() == 0) before = files_of(destination);
                  return text_of(problems_of(saved));
                }) == "");
        REQUIRE(run([&](any_communicator& comm) -> std::string {
                  rows now(comm.rank(), comm.size(), 8);
                  rank_save_options failing = options;
                  failing.within = 200ms;
                  failing.before = [&](save_phase at) -> result<void> {
                    const auto until = std::chrono::steady_clock::now() + 600ms;
                    // Acts like a dead rank: it answers nobody until all others have given up.
                    while (at == phase && comm.rank() == 2 && std::chrono::steady_clock::now() < until)
                      std::this_thread::sleep_for(10ms);
                    return {};
                  };
                  return save(destination, now.state, comm, failing) ? "there was no error" : "";
                }) == "");
        REQUIRE(run([&](any_communicator& comm) -> std::string {
                  meet(comm);  // all ranks have finished removing files
                  if (comm.rank() != 0) return {};
                  if (files_of(destination) != before) return "the previous checkpoint has changed";
                  return entries(folder.path) == 1 ? "" : "something was left beside the checkpoint";
                }) == "");
      }
    }
}

TEST_CASE("a file without objects takes away the copy of the objects of the file that it replaces") {
  const fabric::rank_folder folder("shared-objects");
  const fs::path destination = folder.path / "one.safetensors";
  on_ranks({2}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    if (comm.rank() == 1) mine.state.objects = holdings::objects();
    rank_save_options options{.format = target_format::safetensors, .overwrite = true, .within = 30s};
    if (const auto saved = save(destination, mine.state, comm, options); !saved)
      return text_of(saved.error().problems());
    if (saved_objects(destination) != 6) return "the objects are not there";
    meet(comm);
    options.skip_objects = true;
    const auto without = save(destination, mine.state, comm, options);
    if (!without) return text_of(without.error().problems());
    if (without->objects != 0 || without->skipped_objects != 6) return "another number of objects";
    if (saved_objects(destination) != 0) return "there are objects";
    return entries(folder.path) == 1 ? "" : "the copy of the objects is still there";
  });
}

TEST_CASE("what was copied by start_save goes into shared files, whatever becomes of the tensors meanwhile") {
  const fabric::rank_folder folder("shared-start");
  on_ranks({1, 3}, [&](any_communicator& comm) -> std::string {
    const fs::path destination = folder.path / std::to_string(comm.size());
    rows mine(comm.rank(), comm.size(), 5);
    if (comm.rank() == 0) fs::remove_all(destination);  // remove another fabric's files
    meet(comm);
    auto saving = start_save(destination, mine.state, comm, {.format = target_format::hf, .within = 30s});
    if (!saving) return to_string(saving.error());
    std::fill(mine.memory.begin(), mine.memory.end(), 6);
    if (!saving->wait()) return text_of(saving->wait().error().problems());
    rows loaded(comm.rank(), comm.size(), 0);
    const auto report = load(destination, loaded.state, comm, {.within = 30s});
    if (!report) return text_of(report.error().problems());
    return std::count(loaded.memory.begin(), loaded.memory.end(), 5) == std::ssize(loaded.memory) ? "" : "it differs";
  });
}

TEST_CASE("what cannot be shared safetensors is refused on every rank, before a file exists") {
  const auto refuses = [](const std::vector<std::string>& texts, const rank_save_options& options,
                          const std::function<void(rows&, rank_save_options&, any_communicator&)>& spoil) {
    const fabric::rank_folder folder("shared-refused");
    on_ranks({1, 3}, [&](any_communicator& comm) -> std::string {
      rows mine(comm.rank(), comm.size(), 1);
      rank_save_options now = options;
      spoil(mine, now, comm);
      now.within = 30s;
      const auto report = save(folder.path / "step", mine.state, comm, now);
      if (std::string wrong = must_say(problems_of(report), texts); !wrong.empty()) return wrong;
      meet(comm);
      return fs::is_empty(folder.path) ? "" : "something was written";
    });
  };
  const auto as_it_is = [](rows&, rank_save_options&, any_communicator&) {};
  rank_save_options options{.format = target_format::pt};
  refuses({"step: many ranks cannot write this format together", "save as DCP"}, options, as_it_is);
  options.format = target_format::torch_checkpointing;
  refuses({"step: many ranks cannot write this format together", "save as DCP"}, options, as_it_is);
  options.format = target_format::gguf;
  refuses({"step: many ranks cannot write this format together", "save as DCP"}, options, as_it_is);
  options.format = target_format::npz;
  refuses({"step: many ranks cannot write this format together", "save as DCP"}, options, as_it_is);
  options.format = target_format::hf;
  refuses({"w: safetensors cannot hold complex32"}, options, [](rows& mine, rank_save_options&, any_communicator&) {
    mine.tensor().type = mine.part().memory.type = dtype::complex32;
  });
  refuses({"an object's name that is not UTF-8"}, options, [](rows& mine, rank_save_options&, any_communicator&) {
    mine.state.objects.push_back({{"\xff"}, {}, {true}});
  });
  options.format = target_format::dcp;
  refuses(
      {"the name is not UTF-8", "rename the entry"}, options,
      [](rows& mine, rank_save_options&, any_communicator&) { mine.state.objects.push_back({{"\xff"}, {}, {true}}); });
  options.format = target_format::hf;
  options.selection.rename.push_back(parse_rename_rule("v=x").value());
  refuses({"rename 'v=x' matches no key", "allow_unused"}, options, as_it_is);
  options.selection.rename.clear();
  options.selection.cast.push_back(parse_cast_rule("w=bits8").value());
  refuses({"w: int32 cannot be converted to bits8"}, options, as_it_is);
  options.selection.cast.clear();
  options.selection.only.push_back(key_pattern::compile("x").value());
  refuses({"only 'x' matches no key"}, options, as_it_is);
}

TEST_CASE("ranks that want other formats, files or entries are told apart before a file exists") {
  using spoil = std::function<void(rank_save_options&)>;
  const std::pair<std::string, spoil> spoils[] = {
      {"(format)", [](rank_save_options& of) { of.format = target_format::safetensors; }},
      {"(format)", [](rank_save_options& of) { of.max_shard_bytes = 1; }},
      {"(format)", [](rank_save_options& of) { of.skip_objects = true; }},
      {"(selection)", [](rank_save_options& of) { of.selection.cast.push_back(parse_cast_rule("int8").value()); }},
      {"(selection)", [](rank_save_options& of) { of.selection.rename.push_back(parse_rename_rule("w=v").value()); }},
      {"(selection)", [](rank_save_options& of) { of.selection.only.push_back(key_pattern::exactly("w")); }},
      {"(selection)", [](rank_save_options& of) { of.selection.skip.push_back(key_pattern::exactly("v")); }},
      {"(selection)", [](rank_save_options& of) { of.selection.strip_prefix = "w"; }},
      {"(selection)", [](rank_save_options& of) { of.selection.allow_unused = true; }},
      {"(selection)", [](rank_save_options& of) { of.selection.no_optimizer = true; }}};
  for (const auto& [what, spoiled] : spoils) {
    const fabric::rank_folder folder("shared-apart");
    on_ranks({2, 3}, [&](any_communicator& comm) -> std::string {
      rows mine(comm.rank(), comm.size(), 1);
      rank_save_options options{.format = target_format::hf, .within = 30s};
      if (comm.rank() == 1) spoiled(options);
      const auto report = save(folder.path / "step", mine.state, comm, options);
      if (std::string wrong = must_say(problems_of(report), {"disagree", what}); !wrong.empty()) return wrong;
      meet(comm);
      return fs::is_empty(folder.path) ? "" : "something was written";
    });
  }
}
