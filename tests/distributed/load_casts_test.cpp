// SPDX-License-Identifier: Apache-2.0
// Casts of a load by many ranks are refused if they lose values, and listed otherwise. A cancellation or deadline of
// the load reaches its reads.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "problems_of.hpp"

import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// A rank's rows, in another dtype than the saved one.
template <class V>
struct cast_rows {
  std::vector<V> memory = std::vector<V>(static_cast<std::size_t>(rows::per_rank * rows::width), V{1});
  local_state state;
  cast_rows(std::int32_t rank, std::int32_t ranks, dtype type) {
    const tensor_view view{
        reinterpret_cast<std::byte*>(memory.data()), type, {}, {rows::per_rank, rows::width}, {rows::width, 1}};
    state.tensors.push_back({{"w"},
                             {ranks * rows::per_rank, rows::width},
                             type,
                             {{{{rank * rows::per_rank, 0}, {rows::per_rank, rows::width}}, view}}});
  }
};

// A reader that calls a function whenever a chunk is opened.
class watched_reader final : public checkpoint_reader {
 public:
  watched_reader(std::unique_ptr<checkpoint_reader> inner, std::function<void()> at_chunk)
      : inner_(std::move(inner)), at_chunk_(std::move(at_chunk)) {
    contents_ = inner_->contents();
    path_ = inner_->path();
  }
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    at_chunk_();
    return inner_->open_chunk(tensor, chunk);
  }
  result<object_value> read_object(std::size_t index) override { return inner_->read_object(index); }
  result<std::vector<std::byte>> object_archive(std::size_t index) override { return inner_->object_archive(index); }

 private:
  std::unique_ptr<checkpoint_reader> inner_;
  std::function<void()> at_chunk_;
};

}  // namespace

TEST_CASE("ranks that want a narrower dtype are refused, or told what was cast when they allow it") {
  const fabric::rank_folder folder("casts");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 70'000);
    const auto saved = save(checkpoint, mine.state, comm, {.overwrite = true, .within = 30s});
    if (!saved) return text_of(saved.error().problems());
    cast_rows<std::int16_t> narrow(comm.rank(), comm.size(), dtype::int16);
    auto got = load(checkpoint, narrow.state, comm, {.within = 30s});
    if (got) return "a cast that loses values was not refused";
    if (got.error().problem_count() != 1 || got.error().code != errc::narrowing || got.error().key != "w" ||
        got.error().message != "casting int32 to int16 loses values")
      return "not refused: " + text_of(got.error().problems());
    if (narrow.memory != std::vector<std::int16_t>(narrow.memory.size(), 1)) return "something was written";
    got = load(checkpoint, narrow.state, comm, {.allow_narrowing = true, .within = 30s});
    if (!got || got->casts != std::vector<loaded_cast>{{"w", dtype::int32, dtype::int16}})
      return "allowed: " + text_of(problems_of(got));
    cast_rows<std::int64_t> wide(comm.rank(), comm.size(), dtype::int64);
    got = load(checkpoint, wide.state, comm, {.within = 30s});
    if (!got || got->casts != std::vector<loaded_cast>{{"w", dtype::int32, dtype::int64}})
      return "wider: " + text_of(problems_of(got));
    if (wide.memory != std::vector<std::int64_t>(wide.memory.size(), 70'000)) return "other values";
    rows same(comm.rank(), comm.size(), 0);
    got = load(checkpoint, same.state, comm, {.within = 30s});
    return got && got->casts.empty() ? "" : "a cast of nothing";
  });
}

TEST_CASE("the cancellation and the deadline of a whole load end its reads") {
  const fabric::rank_folder folder("ends");
  on_ranks({1, 2}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    const auto saved = save(checkpoint, mine.state, comm, {.overwrite = true, .within = 30s});
    if (!saved) return text_of(saved.error().problems());
    rows wanted(comm.rank(), comm.size(), 0);
    std::stop_source whole;
    watched_reader reader(open_checkpoint(checkpoint).value(), [&] { whole.request_stop(); });
    const auto got = load(reader, wanted.state, comm, {.cancel = whole.get_token()});
    if (got) return "it was loaded";
    if (got.error().problem_count() != 1 || got.error().code != errc::cancelled) return text_of(got.error().problems());
    return wanted.memory == rows(comm.rank(), comm.size(), 0).memory ? "" : "it read on";
  });
  on_ranks({1, 2}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows wanted(comm.rank(), comm.size(), 0);
    const time_limit soon = 1s;
    watched_reader reader(open_checkpoint(checkpoint).value(), [&] { std::this_thread::sleep_until(*soon + 1ms); });
    const auto got = load(reader, wanted.state, comm, {.within = soon});
    if (got) return "it was loaded";
    if (got.error().problem_count() != 1 || got.error().code != errc::deadline_exceeded)
      return text_of(got.error().problems());
    return wanted.memory == rows(comm.rank(), comm.size(), 0).memory ? "" : "it read on";
  });
}
