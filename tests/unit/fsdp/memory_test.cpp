// SPDX-License-Identifier: Apache-2.0
// Tests the memory of FSDP's calls: ranks that cannot allocate, device memory, shards that are too large, and names
// that share a parameter. Every rank gets the same error, and the communicator works afterwards.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

thread_local bool has_no_memory = false;  // on this rank

// A framework's tensor: on any device, with an allocator that may fail.
struct far_tensor {
  host_tensor memory;
  device where{};
};

}  // namespace

template <>
struct shardmesh::adapter<far_tensor> {
  static tensor_view view(far_tensor& tensor) {
    tensor_view seen = view_of(tensor.memory);
    seen.where = tensor.where;
    return seen;
  }
  static far_tensor allocate(dtype type, const extents& sizes, device where) {
    if (has_no_memory) throw std::bad_alloc();
    return {host_tensor::make(type, sizes).value(), where};
  }
};

namespace {

// Two parameters "a" [3, 2] and "b" [5], with "c" as another name of "b"; element e of the flat tensor is 10 + e.
struct small_model {
  small_model(std::int32_t rank, std::int32_t ranks) {
    const auto flat =
        flat_parameter::make({{"a", {3, 2}, {}}, {"b", {5}, {}}}, {{"c", "b"}}, {.group_size = ranks}).value();
    shard.resize(static_cast<std::size_t>(flat.sharded_numel()));
    const index_range held = flat.shard_range(rank);
    for (std::int64_t i = 0; i < held.size; ++i)
      shard[static_cast<std::size_t>(i)] = 10.0F + static_cast<float>(held.begin + i);
    model.units.push_back(
        {"net",
         flat,
         shard_group::world(ranks),
         {reinterpret_cast<std::byte*>(shard.data()), dtype::float32, {}, {flat.sharded_numel()}, {1}}});
  }
  small_model(const small_model&) = delete;
  std::vector<float> shard;
  fsdp_model model;
};

std::vector<float> floats(const const_tensor_view& view) {
  std::vector<float> values(static_cast<std::size_t>(numel(view)));
  const tensor_view line{
      reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, view.sizes, contiguous_strides(view.sizes)};
  if (!copy(line, view)) std::abort();  // not REQUIRE, since this runs on a rank's thread
  return values;
}

// The error that every rank gets from `body`; the communicator still works afterwards.
error error_on_all(std::int32_t ranks, const std::function<result<void>(any_communicator&)>& body) {
  std::vector<error> got(static_cast<std::size_t>(ranks));
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto done = body(comm);
    has_no_memory = false;
    if (done) return fail(errc::invalid_argument, "there was no error").with_rank(comm.rank());
    got[static_cast<std::size_t>(comm.rank())] = std::move(done).error();
    auto sound = comm.all_gather({}, {});
    return sound ? result<void>() : std::move(sound).error();
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
  for (const error& one : got) CHECK(to_string(one) == to_string(got[0]));
  return got[0];
}

template <class R>
result<void> outcome(R made) {
  return made ? result<void>() : result<void>(std::move(made).error());
}

void all_ranks(std::int32_t ranks, const std::function<result<void>(any_communicator&)>& body) {
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) { return body(comm); });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

result<void> require(bool condition, const std::string& what) {
  return condition ? result<void>() : fail(errc::invalid_argument, what);
}

}  // namespace

TEST_CASE("a rank without memory for its part of a state dict is every rank's error, and nobody waits") {
  const auto full = error_on_all(3, [](any_communicator& comm) {
    const small_model m(comm.rank(), 3);
    has_no_memory = comm.rank() == 1;
    return outcome(full_state_dict<far_tensor>(m.model, comm));
  });
  CHECK(full.code == errc::no_memory);
  CHECK(full.key == "net.a");
  CHECK(full.ranks == std::vector<std::int32_t>{1});
  const auto sharded = error_on_all(3, [](any_communicator& comm) {
    const small_model m(comm.rank(), 3);
    has_no_memory = comm.rank() == 2;
    return outcome(sharded_state_dict<far_tensor>(
        m.model, comm, {.form = sharded_form::dtensor, .mesh = device_mesh::make(extents{3}).value()}));
  });
  CHECK(sharded.code == errc::no_memory);
  CHECK(sharded.ranks == std::vector<std::int32_t>{2});
}

TEST_CASE("a rank without memory for a gathered dtensor is every rank's error") {
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();
  const layout rows = layout::make(mesh, {placement::shard(0), placement::replicate()}, {4, 3}).value();
  const auto e = error_on_all(4, [&](any_communicator& comm) {
    far_tensor local{host_tensor::make(dtype::float32, rows.local_shape(comm.rank())).value()};
    const auto placed = dtensor<far_tensor>::make(rows, comm.rank(), std::move(local)).value();
    has_no_memory = comm.rank() == 3;
    return outcome(tensor_parallel_extension{mesh}.all_gather_dtensor(placed, comm));
  });
  CHECK(e.code == errc::no_memory);
  CHECK(e.ranks == std::vector<std::int32_t>{3});
}

TEST_CASE("calls that only this rank makes say that there is no memory, and do not throw") {
  const device_mesh mesh = device_mesh::make(extents{1, 1}).value();
  const tensor_parallel_extension extension{mesh};
  far_tensor whole{host_tensor::make(dtype::float32, {4, 3}).value()};
  has_no_memory = true;
  const auto chunk = create_chunk_sharded_tensor<far_tensor>(whole, 0, rank_group());
  const auto placed = extension.chunk_dtensor(state_value<far_tensor>(std::move(whole)), 0);
  std::vector<named_parameter<far_tensor>> parameters;
  parameters.push_back({"w", state_value<far_tensor>(far_tensor{host_tensor::make(dtype::float32, {2}).value()})});
  const auto flat = flatten_parameters<far_tensor>(std::move(parameters), extension, mesh, 0, 0);
  has_no_memory = false;
  for (const errc code : {chunk.error().code, placed.error().code, flat.error().code}) CHECK(code == errc::no_memory);
}

TEST_CASE("another name of a tied parameter is copied where its first name arrives") {
  all_ranks(3, [](any_communicator& comm) -> result<void> {
    const small_model m(comm.rank(), 3);
    for (const std::int64_t budget : {std::int64_t{1} << 20, std::int64_t{1}}) {
      auto saved = full_state_dict<host_tensor>(m.model, comm, {.memory_bytes = budget});
      if (!saved) return std::move(saved).error();
      // Ranks lack 7, 7, and 8 of the 11 elements.
      if (auto done = require(saved->profile.bytes_moved == 4 * 22, std::to_string(saved->profile.bytes_moved)); !done)
        return done;
      const const_tensor_view b = view_of(*saved->state.find(path{"net.b"})->tensor());
      const const_tensor_view c = view_of(*saved->state.find(path{"net.c"})->tensor());
      if (auto done =
              require(b.data != c.data && floats(b) == std::vector<float>{16, 17, 18, 19, 20} && floats(c) == floats(b),
                      "the names differ, or are one tensor");
          !done)
        return done;
    }
    auto sharded = sharded_state_dict<host_tensor>(m.model, comm, {.memory_bytes = 1});
    if (!sharded) return std::move(sharded).error();
    const auto values = [&](const char* key) {
      std::vector<float> all;
      for (const auto& one : sharded->state.find(path{key})->sharded_tensor()->local_shards())
        for (const float v : floats(adapter<host_tensor>::view(one.tensor()))) all.push_back(v);
      return all;
    };
    // Chunks of b, by torch.chunk: 2, 2, and 1 elements.
    const std::vector<float> expected[] = {{16, 17}, {18, 19}, {20}};
    return require(values("net.b") == expected[comm.rank()] && values("net.c") == values("net.b"), "chunks of a name");
  });
}

TEST_CASE("memory of a device is refused before anything moves, naming key, rank and device") {
  const auto saving = error_on_all(3, [](any_communicator& comm) {
    small_model m(comm.rank(), 3);
    if (comm.rank() == 1) m.model.units[0].shard.where = {device_type::cuda, 2};
    return outcome(full_state_dict<host_tensor>(m.model, comm));
  });
  CHECK(saving.code == errc::unsupported);
  CHECK(saving.key == "net.a");
  CHECK(saving.ranks == std::vector<std::int32_t>{1});
  CHECK(saving.found == "cuda:2");
  const auto loading = error_on_all(3, [](any_communicator& comm) {
    small_model m(comm.rank(), 3);
    const auto saved = full_state_dict<host_tensor>(m.model, comm);
    const std::vector<float> before = m.shard;
    if (comm.rank() == 2) m.model.units[0].shard.where = {device_type::cuda, 0};
    auto done = load_state_dict(m.model, saved->state, comm);
    return m.shard == before ? outcome(std::move(done)) : fail(errc::invalid_argument, "something was written");
  });
  CHECK(loading.code == errc::unsupported);
  CHECK(loading.key.starts_with("net."));
  CHECK(loading.ranks == std::vector<std::int32_t>{2});
  const auto offered = error_on_all(2, [](any_communicator& comm) {
    small_model m(comm.rank(), 2);
    state_dict<far_tensor> dict;
    for (const char* key : {"net.a", "net.b"}) {
      far_tensor value{host_tensor::make(dtype::float32, key[4] == 'a' ? extents{3, 2} : extents{5}).value()};
      if (comm.rank() == 0 && key[4] == 'b') value.where = {device_type::hip, 1};
      dict.set(path{key}, state_value<far_tensor>(std::move(value))).value();
    }
    return outcome(load_state_dict(m.model, dict, comm));
  });
  CHECK(offered.code == errc::unsupported);
  CHECK(offered.key == "net.b");
  CHECK(offered.found == "hip:1");
  const far_tensor far{host_tensor::make(dtype::float32, {4}).value(), {device_type::cuda, 1}};
  const auto chunk = create_chunk_sharded_tensor<far_tensor>(far, 0, rank_group::world(2));
  CHECK(chunk.error().code == errc::unsupported);
  CHECK(chunk.error().found == "cuda:1");
}

TEST_CASE("the whole flat tensor is not taken for a rank's shard of it") {
  const auto e = error_on_all(2, [](any_communicator& comm) {
    small_model m(comm.rank(), 2);
    std::vector<float> whole(11);
    if (comm.rank() == 0)
      m.model.units[0].shard = {reinterpret_cast<std::byte*>(whole.data()), dtype::float32, {}, {11}, {1}};
    return outcome(full_state_dict<host_tensor>(m.model, comm));
  });
  CHECK(e.code == errc::shape_mismatch);
  CHECK(e.expected == "[6]");
  CHECK(e.found == "[11]");
}

TEST_CASE("a numbering of another number of ranks is refused on every rank") {
  const auto e = error_on_all(3, [](any_communicator& comm) {
    small_model m(comm.rank(), 3);
    const auto saved = full_state_dict<host_tensor>(m.model, comm);
    return outcome(load_state_dict(m.model, saved->state, comm, {.ranks = rank_group::make({4, 5}).value()}));
  });
  CHECK(e.code == errc::invalid_argument);
  CHECK(e.expected == "3 ranks, or none");
  CHECK(e.found == "2: [4, 5]");
  const small_model m(0, 3);
  const auto planned = plan_sharded(m.model, 0, {.ranks = rank_group::make({4, 5}).value()});
  CHECK(planned.error().code == errc::invalid_argument);
  CHECK(planned.error().key == "net.a");
  CHECK(plan_local(m.model, 0, {.ranks = rank_group::make({1, 2, 3, 4}).value()}).error().code ==
        errc::invalid_argument);
  const layout rows = layout::make(device_mesh::make(extents{3}).value(), {placement::shard(0)}, {6}).value();
  CHECK(shards_of_layout(rows, {}, 0, rank_group::make({4, 5}).value(), {}).error().code == errc::invalid_argument);
  CHECK(shards_of_layout(rows, {}, 0, rank_group::make({4, 5, 6, 7}).value(), {}).has_value());
}

TEST_CASE("placements of other ranks do not name this rank's device") {
  const auto texts = [](const sharded_tensor_metadata& metadata) {
    std::vector<std::string> all;
    for (const shard_metadata& one : metadata.shards) all.push_back(to_string(*one.placement));
    return all;
  };
  const rank_group group = rank_group::make({4, 5, 6}).value();
  const device mine{device_type::cuda, 1};
  using strings = std::vector<std::string>;
  CHECK(texts(chunk_metadata({3}, {}, group, mine, {.devices_per_node = 4}).value()) ==
        strings{"rank:4/cuda:0", "rank:5/cuda:1", "rank:6/cuda:2"});
  CHECK(texts(chunk_metadata({3}, {}, group, mine).value()) == strings{"rank:4/cuda", "rank:5/cuda", "rank:6/cuda"});
  CHECK(texts(chunk_metadata({3}, {}, group, {}).value()) == strings{"rank:4/cpu", "rank:5/cpu", "rank:6/cpu"});
  const layout rows = layout::make(device_mesh::make(extents{3}).value(), {placement::shard(0)}, {6}).value();
  CHECK(texts(shards_of_layout(rows, {}, 1, group, {device_type::cuda, 7}, 8).value()) ==
        strings{"rank:4/cuda:4", "rank:5/cuda:7", "rank:6/cuda:6"});
  small_model m(1, 2);
  m.model.units[0].shard.where = {device_type::cuda, 3};
  CHECK(texts(plan_sharded(m.model, 1, {.devices_per_node = 2}).value()[0].metadata) ==
        strings{"rank:0/cuda:0", "rank:1/cuda:3"});
  CHECK(texts(plan_local(m.model, 1).value()[0].metadata) == strings{"rank:0/cuda", "rank:1/cuda:3"});
}
