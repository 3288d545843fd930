// SPDX-License-Identifier: Apache-2.0
// Random requests of ranks that load together, against a model of the whole answer: the values of every element and
// object, and the keys, casts, and bytes of the report. Layouts are in load_sharing_test.cpp.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t stored_tensors = 12, stored_objects = 6, rows_of_all = 9, columns = 5;

// Entries below these numbers are stored; the others are missing.
constexpr std::int64_t all_tensors = stored_tensors + 4, all_objects = stored_objects + 3;

std::string tensor_key(std::int64_t i) {
  return (i < stored_tensors ? "t" : "missing_t") + std::to_string(i);
}
std::string object_key(std::int64_t i) {
  return (i < stored_objects ? "o" : "missing_o") + std::to_string(i);
}
std::int64_t value_of(std::int64_t tensor, std::int64_t row, std::int64_t column) {
  return 1000 * tensor + columns * row + column;
}

// A rank's requests: numbers of tensors in its own order, each with its rows, and of objects.
struct wanted_rows {
  std::int64_t tensor = 0, begin = 0, end = 0;
};
struct wish {
  std::vector<wanted_rows> tensors;
  std::vector<std::int64_t> objects;
};

template <class T>
void shuffle(std::vector<T>& values, dice& roll) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[roll.one_of(i)]);
}

wish random_wish(dice& roll) {
  wish made;
  for (std::int64_t i = 0; i < all_tensors; ++i) {
    if (roll.one_in(3)) continue;
    const std::int64_t begin = roll.below(rows_of_all);
    made.tensors.push_back({i, begin, begin + roll.up_to(rows_of_all - begin)});
  }
  for (std::int64_t i = 0; i < all_objects; ++i)
    if (!roll.one_in(3)) made.objects.push_back(i);
  shuffle(made.tensors, roll);
  shuffle(made.objects, roll);
  return made;
}

// The report that the requests of all ranks give: those of rank 0 in its order, then the additions of rank 1, and so
// on; tensors first.
load_report model_of(std::span<const wish> wishes, const std::vector<bool>& is_double) {
  std::vector<std::int64_t> tensors, objects;
  const auto add = [](std::vector<std::int64_t>& to, std::int64_t i) {
    if (std::find(to.begin(), to.end(), i) == to.end()) to.push_back(i);
  };
  for (const wish& one : wishes) {
    for (const wanted_rows& tensor : one.tensors) add(tensors, tensor.tensor);
    for (const std::int64_t object : one.objects) add(objects, object);
  }
  load_report report;
  for (const std::int64_t i : tensors) {
    (i < stored_tensors ? report.loaded : report.missing).push_back(tensor_key(i));
    if (i < stored_tensors && is_double[static_cast<std::size_t>(i)])
      report.casts.push_back({tensor_key(i), dtype::float32, dtype::float64});
  }
  for (const std::int64_t i : objects) (i < stored_objects ? report.loaded : report.missing).push_back(object_key(i));
  for (std::int64_t i = 0; i < stored_tensors; ++i)
    if (std::find(tensors.begin(), tensors.end(), i) == tensors.end()) report.unexpected.push_back(tensor_key(i));
  for (std::int64_t i = 0; i < stored_objects; ++i)
    if (std::find(objects.begin(), objects.end(), i) == objects.end()) report.unexpected.push_back(object_key(i));
  std::sort(report.unexpected.begin(), report.unexpected.end());
  return report;
}

// Every rank holds everything.
std::string save_all(const fs::path& checkpoint, any_communicator& comm) {
  std::vector<std::vector<float>> memory;
  local_state state;
  memory.reserve(static_cast<std::size_t>(stored_tensors));
  const box whole{{0, 0}, {rows_of_all, columns}};
  for (std::int64_t i = 0; i < stored_tensors; ++i) {
    std::vector<float>& values = memory.emplace_back();
    for (std::int64_t k = 0; k < whole.volume(); ++k)
      values.push_back(static_cast<float>(value_of(i, k / columns, k % columns)));
    const tensor_view view{reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, whole.sizes, {columns, 1}};
    state.tensors.push_back({path{tensor_key(i)}, whole.sizes, dtype::float32, {{whole, view}}});
  }
  for (std::int64_t i = 0; i < stored_objects; ++i) state.objects.push_back({path{object_key(i)}, {}, {i * i}});
  return text_of(problems_of(save(checkpoint, state, comm, {.overwrite = true, .within = 60s})));
}

// The memory of a rank for its requests; float64 where `is_double`.
struct destination {
  local_state state;
  std::vector<std::vector<double>> memory;

  destination(const wish& mine, const std::vector<bool>& is_double) : memory(mine.tensors.size()) {
    for (std::size_t i = 0; i < mine.tensors.size(); ++i) {
      const wanted_rows& one = mine.tensors[i];
      const dtype type = is_double[static_cast<std::size_t>(one.tensor)] ? dtype::float64 : dtype::float32;
      const box where{{one.begin, 0}, {one.end - one.begin, columns}};
      memory[i].assign(static_cast<std::size_t>(where.volume()) + 1, -1);
      const tensor_view view{reinterpret_cast<std::byte*>(memory[i].data()), type, {}, where.sizes, {columns, 1}};
      state.tensors.push_back({path{tensor_key(one.tensor)}, {rows_of_all, columns}, type, {{where, view}}});
    }
    for (const std::int64_t i : mine.objects) state.objects.push_back({path{object_key(i)}, {}, {std::int64_t{-1}}});
  }

  std::int64_t at(std::size_t tensor, std::int64_t k) const {
    const std::vector<double>& values = memory[tensor];
    if (state.tensors[tensor].type == dtype::float64)
      return static_cast<std::int64_t>(values[static_cast<std::size_t>(k)]);
    float value = 0;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(values.data()) + 4 * k, sizeof value);
    return static_cast<std::int64_t>(value);
  }

  // Returns the first element or object that has another value than the stored one.
  std::string difference(const wish& mine) const {
    for (std::size_t i = 0; i < mine.tensors.size(); ++i) {
      const wanted_rows& one = mine.tensors[i];
      for (std::int64_t k = 0; one.tensor < stored_tensors && k < (one.end - one.begin) * columns; ++k)
        if (at(i, k) != value_of(one.tensor, one.begin + k / columns, k % columns))
          return tensor_key(one.tensor) + " differs at element " + std::to_string(k);
    }
    for (std::size_t i = 0; i < mine.objects.size(); ++i) {
      const std::int64_t number = mine.objects[i];
      const std::int64_t expected = number < stored_objects ? number * number : -1;
      if (state.objects[i].leaves != std::vector<plain_value>{expected}) return object_key(number) + " differs";
    }
    return {};
  }
};

std::int64_t bytes_of(const wish& mine, const std::vector<bool>& is_double) {
  std::int64_t bytes = 0;
  for (const wanted_rows& one : mine.tensors)
    if (one.tensor < stored_tensors)
      bytes += (one.end - one.begin) * columns * (is_double[static_cast<std::size_t>(one.tensor)] ? 8 : 4);
  return bytes;
}

std::string differences(load_report got, const load_report& expected) {
  std::sort(got.unexpected.begin(), got.unexpected.end());
  if (got.loaded != expected.loaded) return "other keys are loaded";
  if (got.missing != expected.missing) return "other keys are missing";
  if (got.unexpected != expected.unexpected) return "other keys are unexpected";
  if (got.casts != expected.casts) return "other casts";
  return {};
}

}  // namespace

TEST_CASE("the report of random requests names the same keys and casts on every rank, and the values are right") {
  const watchdog dog(300s);
  const fabric::rank_folder folder("load-report");
  on_ranks({1, 2, 4},
           [&](any_communicator& comm) { return save_all(folder.path / ("of-" + std::to_string(comm.size())), comm); });
  for (int round = 0; round < fabric::rounds(15); ++round) {
    const std::uint64_t seed = fabric::seed() + 131 * static_cast<std::uint64_t>(round);
    INFO("SHARDMESH_SEED=" << fabric::seed() << " round " << round);
    on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
      dice roll(seed);
      std::vector<bool> is_double;
      for (std::int64_t i = 0; i < all_tensors; ++i) is_double.push_back(roll.one_in(3));
      std::vector<wish> wishes;
      for (std::int32_t rank = 0; rank < comm.size(); ++rank) wishes.push_back(random_wish(roll));
      const read_sharing sharing = roll.pick({read_sharing::automatic, read_sharing::group, read_sharing::each_rank});
      const std::int64_t memory = roll.pick({std::int64_t{128} << 20, std::int64_t{1}});
      const wish& mine = wishes[static_cast<std::size_t>(comm.rank())];
      destination to(mine, is_double);
      const auto report =
          load(folder.path / ("of-" + std::to_string(comm.size())), to.state, comm,
               {.within = 60s, .sharing = sharing, .missing = key_check::ignore, .memory_bytes = memory});
      if (!report) return text_of(report.error().problems());
      if (std::string wrong = differences(*report, model_of(wishes, is_double)); !wrong.empty()) return wrong;
      if (std::string wrong = to.difference(mine); !wrong.empty()) return wrong;
      if (sharing == read_sharing::each_rank &&
          (report->bytes_read != bytes_of(mine, is_double) || report->bytes_received != 0))
        return "it read " + std::to_string(report->bytes_read) + " bytes and received " +
               std::to_string(report->bytes_received);
      return {};
    });
  }
}
