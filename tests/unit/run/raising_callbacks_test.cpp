// SPDX-License-Identifier: Apache-2.0
// Tests that an exception from the caller's code during a save is every rank's error, leaves no file, and leaves the
// run usable.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <scratch_folder.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "run_states.hpp"

import shardmesh.comm;
import shardmesh.dcp;

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace raising_states {

// A trainer whose view raises if `raises`.
struct unviewable {
  trainer inner;
  bool raises = false;
};

inline result<local_state> local_view(unviewable& mine) {
  if (mine.raises) throw std::runtime_error("not today");
  return run_states::local_view(mine.inner);
}

}  // namespace raising_states

namespace {

using raising_states::unviewable;

struct fault {
  std::string name;
  std::function<void(run_save_options&, unviewable&)> put;
};

fault before(std::string name, save_phase phase) {
  const auto raise = [phase](save_phase now) -> result<void> {
    if (now == phase) throw std::runtime_error("not today");
    return {};
  };
  return {std::move(name), [raise](run_save_options& how, unviewable&) { how.saving.before = raise; }};
}

std::vector<fault> all_faults() {
  const auto raise = [] { throw std::runtime_error("not today"); };
  return {
      {"the view", [](run_save_options&, unviewable& state) { state.raises = true; }},
      before("before describe", save_phase::describe),
      before("before stage", save_phase::stage),
      before("before write", save_phase::write),
      before("before finish", save_phase::finish),
      {"progress",
       [raise](run_save_options& how, unviewable&) { how.saving.progress = [raise](std::int64_t) { raise(); }; }},
      {"before_commit", [raise](run_save_options& how, unviewable&) { how.saving.hooks.before_commit = raise; }},
      {"last_check",
       [raise](run_save_options& how, unviewable&) {
         how.saving.hooks.last_check = [raise]() -> result<void> {
           raise();
           return {};
         };
       }},
  };
}

enum class ground : std::uint8_t { fore, back };

// Saves a step in the foreground or in the background, and returns its outcome.
result<void> save_step(checkpoint_run& run, any_communicator& comm, std::int64_t step, ground where, unviewable& state,
                       const run_save_options& how) {
  if (where == ground::fore) {
    const auto saved = run.save(step, state, comm, how);
    if (!saved) return saved.error();
    return {};
  }
  const auto started = run.start_save(step, state, comm, how);
  if (!started) return started.error();
  for (const ended_save& one : run.wait())
    if (!one.outcome) return one.outcome.error();
  return {};
}

// A callback of which the given copy raises.
class raising_copy {
 public:
  explicit raising_copy(int which) : left_(std::make_shared<int>(which)) {}
  raising_copy(const raising_copy& other) : left_(other.left_) {
    if (--*left_ == 0) throw std::runtime_error("not today");
  }
  raising_copy(raising_copy&&) noexcept = default;
  raising_copy& operator=(const raising_copy&) = delete;
  raising_copy& operator=(raising_copy&&) = delete;
  ~raising_copy() = default;

  result<void> operator()(save_phase) const { return {}; }

 private:
  std::shared_ptr<int> left_;
};

}  // namespace

TEST_CASE("an exception of one rank's code is every rank's error, and the same step can be saved afterwards") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "run";
  const checkpoint_run_options options{.incremental = true};
  save_steps(folder, {1}, options);
  std::set<std::string> steps{"step-1"};
  std::int64_t step = 1;
  for (const fault& one : all_faults())
    for (const ground where : {ground::fore, ground::back})
      for (const std::int32_t raising : {0, 1}) {
        INFO(one.name << " of rank " << raising << (where == ground::back ? ", in the background" : ""));
        ++step;
        on_ranks(2, [&](any_communicator& comm) -> result<void> {
          auto run = checkpoint_run::open(folder, comm, options);
          if (!run) return std::move(run).error();
          unviewable state{trained(comm, step)};
          run_save_options how = quick();
          if (comm.rank() == raising) one.put(how, state);
          const auto refused = save_step(*run, comm, step, where, state, how);
          if (refused) return expect(false, "the step is saved");
          const error& why = refused.error();
          if (auto same = expect(why.ranks == std::vector{raising} &&
                                     to_string(why).find("an exception was thrown: not today") != std::string::npos,
                                 to_string(why));
              !same)
            return same;
          // The other rank may still be removing the folder that the two shared.
          if (auto both = agree(comm, std::span<const agreement_record>()); !both) return std::move(both).error();
          if (comm.rank() == 0)
            if (auto none = expect(names_in(folder, "step-") == steps, "files are left"); !none) return none;
          state.raises = false;
          if (auto saved = save_step(*run, comm, step, where, state, quick()); !saved) return saved;
          return expect(run->take_notes().empty(), "a note");
        });
        steps.insert(folder_name(step, step_names::step));
        CHECK(names_in(folder, "step-") == steps);
        CHECK(dcp::references_of(folder / folder_name(step, step_names::step)).value() ==
              std::vector<std::string>{"step-1"});
      }
}

TEST_CASE("an exception of another rank than 0 before the commit does not fail the save that rank 0 commits") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "run";
  const fault commit = before("before commit", save_phase::commit);
  for (const std::int32_t raising : {0, 1})
    on_ranks(2, [&](any_communicator& comm) -> result<void> {
      auto run = checkpoint_run::open(folder, comm);
      if (!run) return std::move(run).error();
      unviewable state{trained(comm, 1)};
      run_save_options how = quick();
      if (comm.rank() == raising) commit.put(how, state);
      const auto saved = save_step(*run, comm, 1, ground::fore, state, how);
      return expect(saved.has_value() == (raising == 1), text_of(saved));
    });
  CHECK(names_in(folder, "step-") == std::set<std::string>{"step-1"});
}

TEST_CASE("a step whose save raised outside of the ranks' rounds is not in progress for the rest of the run") {
  int refused = 0;
  for (const ground where : {ground::fore, ground::back})
    for (int copy = 1; copy <= 8; ++copy) {
      INFO("copy " << copy << (where == ground::back ? ", in the background" : ""));
      const scratch_folder scratch;
      const fs::path folder = scratch / "run";
      save_steps(folder, {1});
      std::optional<checkpoint_run> run;
      result<void> ended;
      on_ranks(1, [&](any_communicator& comm) -> result<void> {
        auto opened = checkpoint_run::open(folder, comm, {.incremental = true});
        if (!opened) return std::move(opened).error();
        run.emplace(*std::move(opened));
        unviewable state{trained(comm, 2)};
        run_save_options how = quick();
        how.saving.before = raising_copy(copy);
        ended = save_step(*run, comm, 2, where, state, how);
        return {};
      });
      if (ended) continue;
      ++refused;
      CHECK(to_string(ended.error()).find("an exception was thrown: not today") == 0);
      // Step 2 would have referred to step 1, which could then not be replaced.
      on_ranks(1, [&](any_communicator& comm) -> result<void> {
        unviewable state{trained(comm, 1)};
        run_save_options how = quick();
        how.saving.overwrite = true;
        return save_step(*run, comm, 1, where, state, how);
      });
      CHECK(names_in(folder, "step-") == std::set<std::string>{"step-1"});
    }
  CHECK(refused >= 4);  // two copies in each kind of save
}
