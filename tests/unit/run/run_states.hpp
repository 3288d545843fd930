// SPDX-License-Identifier: Apache-2.0
// A state that tests of runs save on any number of ranks that divides eight: "frozen" never changes, "w" and "step" do.
// It imports, so it is the last header that a test includes.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.run;

namespace run_states {

using namespace shardmesh;

inline constexpr std::int64_t rows = 8, columns = 4;

/// One rank's rows.
struct trainer {
  std::int32_t rank = 0, ranks = 1;
  std::vector<float> frozen, weights;
  std::int64_t step = 0;

  trainer(std::int32_t rank_, std::int32_t ranks_) : rank(rank_), ranks(ranks_) {
    frozen.resize(static_cast<std::size_t>(local_rows() * columns));
    weights.resize(frozen.size());
  }
  std::int64_t local_rows() const { return rows / ranks; }

  /// The values after training up to `to`: each weight names its step and place.
  void train(std::int64_t to) {
    step = to;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float place = static_cast<float>(rank * local_rows() * columns) + static_cast<float>(i);
      frozen[i] = -place;
      weights[i] = static_cast<float>(100 * to) + place;
    }
  }
  bool operator==(const trainer&) const = default;
};

inline result<local_state> local_view(trainer& mine) {
  const std::int64_t count = mine.local_rows();
  const box where{{mine.rank * count, 0}, {count, columns}};
  const auto view = [&](std::vector<float>& values) {
    return tensor_view{reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, {count, columns}, {columns, 1}};
  };
  local_state part;
  part.tensors.push_back({{"frozen"}, {rows, columns}, dtype::float32, {{where, view(mine.frozen)}}});
  part.tensors.push_back({{"w"}, {rows, columns}, dtype::float32, {{where, view(mine.weights)}}});
  part.objects.push_back({{"step"}, {}, {mine.step}});
  return part;
}

inline result<void> set_objects(trainer& mine, std::span<const local_state_object> objects) {
  for (const local_state_object& object : objects) {
    const auto* const step = std::get_if<std::int64_t>(&object.leaves.front());
    if (step == nullptr) return fail(errc::dtype_mismatch, "is no integer").with_key("step");
    mine.step = *step;
  }
  return {};
}

/// The state of this rank after training up to `step`.
inline trainer trained(communicator_ref comm, std::int64_t step) {
  trainer made(comm.rank(), comm.size());
  made.train(step);
  return made;
}

inline std::string text_of(const auto& done) {
  return done ? "" : to_string(done.error());
}

/// Runs the body on each rank; any error fails the test.
inline void on_ranks(std::int32_t ranks, function_ref<result<void>(any_communicator&)> body) {
  const auto ran = run_ranks(ranks, body);
  INFO(text_of(ran));
  REQUIRE(ran);
}

/// An error if `is_true` is false, for bodies of ranks.
inline result<void> expect(bool is_true, const std::string& what) {
  if (!is_true) return fail(errc::invalid_argument, what);
  return {};
}

/// Saves of this process need no sync to the disk.
inline run_save_options quick(std::optional<double> metric = std::nullopt) {
  run_save_options made;
  made.metric = metric;
  made.saving.durable = false;
  return made;
}

/// Saves these steps on two ranks, each in the foreground. `metrics` has those of the steps that have one.
inline void save_steps(const std::filesystem::path& folder, const std::vector<std::int64_t>& steps,
                       const checkpoint_run_options& options = {}, const std::map<std::int64_t, double>& metrics = {}) {
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(folder, comm, options);
    if (!run) return std::move(run).error();
    for (const std::int64_t step : steps) {
      const auto metric = metrics.find(step);
      trainer state = trained(comm, step);
      const auto saved =
          run->save(step, state, comm, quick(metric == metrics.end() ? std::nullopt : std::optional(metric->second)));
      if (!saved) return saved.error();
    }
    run->wait();
    return {};
  });
}

/// The names in a folder that contain `part`.
inline std::set<std::string> names_in(const std::filesystem::path& folder, std::string_view part = "") {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.find(part) != std::string::npos) names.insert(std::move(name));
  }
  return names;
}

/// The numbers of the steps in a folder.
inline std::vector<std::int64_t> numbers_in(const std::filesystem::path& folder, step_names names = step_names::step) {
  std::vector<std::int64_t> numbers;
  const auto listed = list_steps(folder, names).value();
  for (const run_step& step : listed) numbers.push_back(step.step);
  return numbers;
}

/// Makes a file shorter by one byte.
inline void shorten(const std::filesystem::path& file) {
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
}

/// The offset of a float32 in a file; it is there once.
inline std::int64_t offset_of(const std::filesystem::path& file, float value) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const std::string wanted(reinterpret_cast<const char*>(&value), sizeof value);
  const std::size_t at = bytes.find(wanted);
  REQUIRE(at != std::string::npos);
  REQUIRE(bytes.find(wanted, at + 1) == std::string::npos);
  return static_cast<std::int64_t>(at);
}

/// Changes one byte of a file, and keeps its size.
inline void flip_byte(const std::filesystem::path& file, std::int64_t offset) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(offset);
  const int old = stream.get();
  stream.seekp(offset);
  stream.put(static_cast<char>(old ^ 1));
}

// Resumes on this many ranks, and checks that each has the state of `step`. Returns the notes about skipped steps.
inline std::vector<error> check_resumes(const std::filesystem::path& folder, std::int32_t ranks, std::int64_t step,
                                        const checkpoint_run_options& options = {}) {
  std::vector<error> skipped;
  on_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(folder, comm, options);
    if (!run) return std::move(run).error();
    trainer state(comm.rank(), comm.size());
    auto resumed = run->resume(state, comm);
    if (!resumed) return std::move(resumed).error();
    if (comm.rank() == 0) skipped = resumed->skipped;
    if (auto same = expect(resumed->step == step, "another step"); !same) return same;
    if (auto same = expect(resumed->path == folder / folder_name(step, options.names), "another path"); !same)
      return same;
    return expect(state == trained(comm, step), "other values");
  });
  return skipped;
}

}  // namespace run_states
