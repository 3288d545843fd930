// SPDX-License-Identifier: Apache-2.0
// `save`, `start_save`, and `load` of a user's own types with a local view, from one process and from two ranks:
// values, lifetimes, and errors.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <safetensors_files.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "small_states.hpp"
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

namespace user {

/// A trainer that cannot put its objects back.
struct forgetful {
  trainer mine;
};
shardmesh::result<shardmesh::local_state> local_view(forgetful& state) {
  return local_view(state.mine);
}

/// A trainer whose view fails on rank 1, with an error or with an exception.
struct failing {
  trainer mine;
  bool throws = false;
};
shardmesh::result<shardmesh::local_state> local_view(failing& state) {
  if (state.mine.rank == 1) {
    if (state.throws) throw std::runtime_error("a lazy tensor");
    return shardmesh::fail(shardmesh::errc::unsupported, "is lazy").with_key("w");
  }
  return local_view(state.mine);
}
shardmesh::result<void> set_objects(failing& state, std::span<const shardmesh::local_state_object> objects) {
  return set_objects(state.mine, objects);
}

/// A tensor whose saved values are a copy in the view.
struct doubled {
  std::vector<float> values;
};
struct doubled_view {
  std::vector<float> copy;
  shardmesh::tensor_view memory;

  shardmesh::result<shardmesh::const_local_state> to_save() {
    shardmesh::const_local_state part;
    shardmesh::const_tensor_view view = memory;
    view.data = reinterpret_cast<const std::byte*>(copy.data());
    part.tensors.push_back({{"v"}, memory.sizes, memory.type, {{shardmesh::box::whole(memory.sizes), view}}});
    return part;
  }
  shardmesh::local_state to_load(const std::function<bool(std::string_view)>&) const {
    shardmesh::local_state part;
    part.tensors.push_back({{"v"}, memory.sizes, memory.type, {{shardmesh::box::whole(memory.sizes), memory}}});
    return part;
  }
};
/// A view that asks for the rank; every rank has the same values.
shardmesh::result<doubled_view> local_view(doubled& state, std::int32_t rank) {
  if (rank < 0) return shardmesh::fail(shardmesh::errc::out_of_bounds, "no such rank");
  const auto count = static_cast<std::int64_t>(state.values.size());
  doubled_view made{state.values,
                    {reinterpret_cast<std::byte*>(state.values.data()), shardmesh::dtype::float32, {}, {count}, {1}}};
  for (float& value : made.copy) value *= 2;
  return made;
}

}  // namespace user

using namespace shardmesh;
using namespace small_states;
namespace fs = std::filesystem;

TEST_CASE("a type whose local_view and set_objects stand beside it is saved and loaded, on ranks and alone") {
  const safetensors_files::temporary_folder scratch;
  const auto said = on_two_ranks([&](any_communicator& comm) -> std::string {
    user::trainer saved = user::trainer::filled(comm.rank(), 2), loaded{comm.rank(), 2};
    if (const auto report = save(scratch.path() / "dcp", saved, comm, quick); !report) return text_of(report);
    if (const auto report = load(scratch.path() / "dcp", loaded, comm); !report) return text_of(report);
    if (loaded.rows != saved.rows) return "other rows";
    return loaded.step == 7 ? "" : "another step";
  });
  CHECK(said == success);
  // Rank 1's rows, loaded by one process.
  user::trainer part{1, 2};
  REQUIRE(load(scratch.path() / "dcp", part));
  CHECK(part.rows == floats{6, 7, 8, 9, 10, 11});
  CHECK(part.step == 7);
}

TEST_CASE("the error of set_objects is the error of the load") {
  const safetensors_files::temporary_folder scratch;
  dict other;
  other.set({"w"}, host_tensor::zeros(dtype::float32, {2, 3}).value()).value();
  other.set({"step"}, "seven").value();
  REQUIRE(save(scratch.path() / "dcp", other, quick));
  user::trainer mine;
  const auto report = load(scratch.path() / "dcp", mine);
  REQUIRE_FALSE(report);
  CHECK(to_string(report.error()) == "step: is no integer");
}

TEST_CASE("a state with objects and without set_objects is saved, and refused by load before a byte is read") {
  const safetensors_files::temporary_folder scratch;
  user::forgetful saved{user::trainer::filled(0, 1)}, loaded;
  REQUIRE(save(scratch.path() / "dcp", saved, quick));
  const auto report = load(scratch.path() / "dcp", loaded);
  REQUIRE_FALSE(report);
  CHECK(to_string(report.error()) ==
        "step: the local view has an object, but the state has no set_objects for its value; declare result<void> "
        "set_objects(State&, std::span<const local_state_object>) beside the state");
  CHECK(loaded.mine.rows == floats(6, 0.0F));
}

TEST_CASE("every rank gets the error of the rank without a view, and the communicator stays usable") {
  const safetensors_files::temporary_folder scratch;
  const fs::path folder = scratch.path() / "dcp";
  for (const bool throws : {false, true}) {
    const std::string expected = throws ? "an exception was thrown: a lazy tensor (rank 1)" : "w: is lazy (rank 1)";
    const std::vector<std::string> refused(2, expected);
    CAPTURE(throws);
    const auto saving = on_two_ranks([&](any_communicator& comm) -> std::string {
      user::failing state{user::trainer::filled(comm.rank(), 2), throws};
      return text_of(save(folder, state, comm, quick));
    });
    CHECK(saving == refused);
    const auto starting = on_two_ranks([&](any_communicator& comm) -> std::string {
      user::failing state{user::trainer::filled(comm.rank(), 2), throws};
      return text_of(start_save(folder, state, comm, quick));
    });
    CHECK(starting == refused);
    CHECK_FALSE(fs::exists(folder));
    const fs::path saved = scratch.path() / (throws ? "second" : "first");
    const auto loading = on_two_ranks([&](any_communicator& comm) -> std::string {
      user::failing state{user::trainer{comm.rank(), 2}, throws};
      user::trainer good = user::trainer::filled(comm.rank(), 2);
      if (const auto report = save(saved, good, comm, quick); !report) return text_of(report);
      const auto report = load(saved, state, comm);
      // The same communicator continues to work.
      if (const auto after = load(saved, good, comm); !after) return text_of(after);
      return text_of(report);
    });
    CHECK(loading == refused);
  }
}

TEST_CASE("a view that owns what it saves lives until the save is over") {
  const safetensors_files::temporary_folder scratch;
  user::doubled saved{{1, 2, 3}}, loaded{{0, 0, 0}};
  REQUIRE(save(scratch.path() / "dcp", saved, quick));
  REQUIRE(load(scratch.path() / "dcp", loaded));
  CHECK(loaded.values == floats{2, 4, 6});
}

TEST_CASE("start_save has copied the state and its view when it returns") {
  const safetensors_files::temporary_folder scratch;
  const auto said = on_two_ranks([&](any_communicator& comm) -> std::string {
    // Of each state, the memory is gone or changed before the save has ended.
    auto rows = std::make_unique<user::trainer>(user::trainer::filled(comm.rank(), 2));
    auto saving = start_save(scratch.path() / "rows", *rows, comm, quick);
    if (!saving) return text_of(saving);
    std::fill(rows->rows.begin(), rows->rows.end(), -1.0F);
    rows.reset();
    if (const auto& report = saving->wait(); !report) return text_of(report);
    auto temporary = start_save(scratch.path() / "doubled", user::doubled{{1, 2, 3}}, comm, quick);
    if (!temporary) return text_of(temporary);
    if (const auto& report = temporary->wait(); !report) return text_of(report);
    user::trainer loaded{comm.rank(), 2};
    if (const auto report = load(scratch.path() / "rows", loaded, comm); !report) return text_of(report);
    user::doubled doubled{{0, 0, 0}};
    if (const auto report = load(scratch.path() / "doubled", doubled, comm); !report) return text_of(report);
    if (loaded.rows != user::trainer::filled(comm.rank(), 2).rows) return "other rows";
    return doubled.values == floats{2, 4, 6} ? "" : "other doubled values";
  });
  CHECK(said == success);
}
