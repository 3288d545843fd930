// SPDX-License-Identifier: Apache-2.0
// Tests the flat options of calls, and the options of lower rooms that they are turned into. That structs share members
// and defaults is tested by tests/static/options.py.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;

namespace {

const auto end = std::chrono::steady_clock::now() + std::chrono::hours(1);

// Options that all differ from their defaults. `said` is what the callbacks report.
template <class Options>
Options changed(std::string& said, const std::stop_source& stop) {
  Options made{.overwrite = true, .durable = false, .memory_bytes = 5, .threads = 7, .within = end};
  made.cancel = stop.get_token();
  made.progress = [&said](std::int64_t bytes) { said += "moved " + std::to_string(bytes) + "; "; };
  made.hooks.may_replace = [&said](const std::filesystem::path&, const destination_snapshot&) -> result<void> {
    said += "may replace; ";
    return {};
  };
  made.hooks.before_commit = [&said] { said += "before commit; "; };
  made.hooks.last_check = [&said]() -> result<void> {
    said += "last check";
    return {};
  };
  return made;
}

void check_changed(const save_options& made, const std::string& said, std::stop_source& stop) {
  CHECK(made.overwrite);
  CHECK_FALSE(made.durable);
  CHECK(made.memory_bytes == 5);
  CHECK(made.threads == 7);
  CHECK(made.within == time_limit(end));
  made.progress(3);
  CHECK(made.output().may_replace({}, {}));
  made.hooks.before_commit();
  CHECK(made.hooks.last_check());
  CHECK(said == "moved 3; may replace; before commit; last check");
  CHECK(made.output().overwrite);
  CHECK_FALSE(made.output().durable);
  CHECK(made.call().within == time_limit(end));
  CHECK_FALSE(made.call().cancel.stop_requested());
  stop.request_stop();
  CHECK(made.call().cancel.stop_requested());
}

template <class Options>
void check_saving() {
  std::string said;
  std::stop_source stop;
  check_changed(changed<Options>(said, stop).saving(), said, stop);
}

}  // namespace

TEST_CASE("the options of saving reach the writer, its output, and the limits of its call") {
  std::string said;
  std::stop_source stop;
  check_changed(changed<save_options>(said, stop), said, stop);
  check_saving<convert_options>();
  check_saving<reshard_options>();
  check_saving<rank_save_options>();
}

TEST_CASE("the options of a load by ranks reach each rank's own reads") {
  std::stop_source stop;
  std::string said;
  const rank_load_options options{.threads = 7,
                                  .allow_narrowing = true,
                                  .check = true,
                                  .within = end,
                                  .cancel = stop.get_token(),
                                  .progress = [&](std::int64_t bytes) { said += std::to_string(bytes); },
                                  .on_arrival = [&](const std::string& key) { said += key; },
                                  .reading = {.staging_bytes = 9}};
  const load_options made = options.loading();
  CHECK(made.threads == 7);
  CHECK(made.allow_narrowing);
  CHECK(made.check);
  CHECK(made.reading.staging_bytes == 9);
  made.progress(3);
  made.on_arrival("w");
  CHECK(said == "3w");
  CHECK(made.call().within == time_limit(end));
  stop.request_stop();
  CHECK(made.call().cancel.stop_requested());
}

TEST_CASE("the options of a sharded load reach the placements, the selection, and the reads") {
  std::stop_source stop;
  bool is_reported = false;
  std::int64_t moved = 0;
  const load_sharded_options options{.default_placements = {placement::shard(1)},
                                     .allow_unused = true,
                                     .optimizer_follows = false,
                                     .selection = {.strip_prefix = "model."},
                                     .objects = false,
                                     .threads = 7,
                                     .check = true,
                                     .within = end,
                                     .cancel = stop.get_token(),
                                     .progress = [&](std::int64_t bytes) { moved += bytes; },
                                     .report = [&](const read_state_report&) { is_reported = true; },
                                     .reading = {.map_rows = true},
                                     .opening = {.max_open_files = 3}};
  const placement_options placing = options.placing();
  CHECK(placing.default_placements == options.default_placements);
  CHECK(placing.allow_unused);
  CHECK_FALSE(placing.optimizer_follows);
  const read_state_options state = options.reading_state();
  CHECK(state.selection.strip_prefix == "model.");
  CHECK_FALSE(state.selection.allow_unused);
  CHECK_FALSE(state.objects);
  CHECK(state.opening.max_open_files == 3);
  state.report({});
  CHECK(is_reported);
  const load_options reads = state.loading();
  CHECK(reads.threads == 7);
  CHECK(reads.check);
  CHECK(reads.reading.map_rows);
  reads.progress(3);
  CHECK(moved == 3);
  CHECK(reads.call().within == time_limit(end));
  stop.request_stop();
  CHECK(reads.call().cancel.stop_requested());
}
