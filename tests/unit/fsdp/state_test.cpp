// SPDX-License-Identifier: Apache-2.0
// Tests state dicts of units: streaming, mixed precision, optimizer state, and sources on only some ranks. Every rank
// gets every error, with its key.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
import shardmesh.fsdp;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

using state = state_dict<host_tensor>;

// Two parameters "a" [3, 2] and "b" [5] of one unit; element e of the flat tensor is 10 + e.
struct small_model {
  small_model(std::int32_t rank, std::int32_t ranks, dtype = dtype::float32, std::string prefix = "net") {
    const auto flat =
        flat_parameter::make({{"a", {3, 2}, {}}, {"b", {5}, {}}}, {{"c", "b"}}, {.group_size = ranks}).value();
    shard.resize(static_cast<std::size_t>(flat.sharded_numel()));
    const index_range held = flat.shard_range(rank);
    for (std::int64_t i = 0; i < held.size; ++i)
      shard[static_cast<std::size_t>(i)] = 10.0F + static_cast<float>(held.begin + i);
    model.units.push_back(
        {std::move(prefix),
         flat,
         shard_group::world(ranks),
         {reinterpret_cast<std::byte*>(shard.data()), dtype::float32, {}, {flat.sharded_numel()}, {1}}});
  }
  small_model(const small_model&) = delete;
  std::vector<float> shard;
  fsdp_model model;
};

std::vector<float> floats(const host_tensor& tensor) {
  const auto* values = reinterpret_cast<const float*>(tensor.bytes().data());
  return {values, values + tensor.bytes().size() / sizeof(float)};
}

host_tensor filled(const extents& sizes, float value, dtype type = dtype::float32) {
  auto tensor = host_tensor::make(type, sizes).value();
  const tensor_view constant{
      reinterpret_cast<std::byte*>(&value), dtype::float32, {}, sizes, extents::filled(sizes.rank(), 0)};
  if (!copy(adapter<host_tensor>::view(tensor), constant)) std::abort();
  return tensor;
}

// The error of each rank; fails when a rank gets none.
template <class Body>
std::vector<std::string> errors_of(std::int32_t ranks, Body body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto made = body(comm);
    if (!made) texts[static_cast<std::size_t>(comm.rank())] = to_string(made.error());
    return {};
  });
  if (!ran) texts.push_back(to_string(ran.error()));
  return texts;
}

}  // namespace

TEST_CASE("a full state dict streams one tensor at a time, in order, and only the wanted rank gets any") {
  std::vector<std::vector<std::string>> seen(3);
  std::vector<float> b;
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    const small_model m(comm.rank(), 3);
    auto& keys = seen[static_cast<std::size_t>(comm.rank())];
    auto done = stream_full_state_dict<host_tensor>(m.model, comm,
                                                    [&](std::string_view key, host_tensor tensor) {
                                                      keys.emplace_back(key);
                                                      if (key == "net.b") b = floats(tensor);
                                                    },
                                                    {.rank0_only = true, .rank = 1, .memory_bytes = 1});
    if (!done) return std::move(done).error();
    // Rank 1 lacks 4 elements of a and 3 of b, which are sent once for both of its names.
    if (done->bytes_moved != 4 * (4 + 3)) return fail(errc::invalid_argument, std::to_string(done->bytes_moved));
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  REQUIRE(ran);
  CHECK(seen == std::vector<std::vector<std::string>>{{}, {"net.a", "net.b", "net.c"}, {}});
  CHECK(b == std::vector<float>{16, 17, 18, 19, 20});
}

TEST_CASE("what a visitor does wrong on one rank is an error on all") {
  const auto failing = errors_of(3, [](any_communicator& comm) {
    const small_model m(comm.rank(), 3);
    return stream_full_state_dict<host_tensor>(m.model, comm,
                                               [&](std::string_view key, host_tensor) -> result<void> {
                                                 if (comm.rank() == 2 && key == "net.b")
                                                   return fail(errc::no_space, "disk full").with_key(key);
                                                 return {};
                                               },
                                               {.memory_bytes = 1});
  });
  CHECK_THAT(failing[2], ContainsSubstring("disk full"));
  for (const std::string& text : failing) CHECK_THAT(text, ContainsSubstring("disk full"));
  const auto throwing = errors_of(2, [](any_communicator& comm) -> result<fsdp_profile> {
    const small_model m(comm.rank(), 2);
    try {
      return stream_full_state_dict<host_tensor>(m.model, comm,
                                                 [&](std::string_view, host_tensor) {
                                                   if (comm.rank() == 0) throw std::runtime_error("out of paper");
                                                 },
                                                 {.memory_bytes = 1});
    } catch (const std::exception& e) {
      return fail(errc::io, e.what());
    }
  });
  for (const std::string& text : throwing) CHECK_THAT(text, ContainsSubstring("out of paper"));
}

TEST_CASE("buffers under mixed precision are saved in their own dtype and load back") {
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    small_model m(comm.rank(), 2);
    host_tensor mean = filled({2}, 1.5F, dtype::bfloat16), ignored = filled({2}, 2.5F, dtype::bfloat16);
    m.model.tensors = {{"_fsdp_wrapped_module.bn.mean", adapter<host_tensor>::view(mean), dtype::float32},
                       {"other", adapter<host_tensor>::view(ignored), dtype::float32, true}};
    auto saved = full_state_dict<host_tensor>(m.model, comm, {.rank0_only = true});
    if (!saved) return std::move(saved).error();
    const auto* kept = saved->state.find(path{"other"});
    if (!kept || kept->tensor()->type() != dtype::bfloat16)
      return fail(errc::invalid_argument, "ignored tensor was cast");
    const auto* value = saved->state.find(path{"bn.mean"});
    if ((value != nullptr) != (comm.rank() == 0)) return fail(errc::invalid_argument, "who has the buffer");
    if (value && floats(*value->tensor()) != std::vector<float>{1.5F, 1.5F})
      return fail(errc::invalid_argument, "value");
    mean = filled({2}, 0, dtype::bfloat16);
    m.model.tensors[0].value = adapter<host_tensor>::view(mean);
    auto narrow = load_state_dict(m.model, saved->state, comm);
    if (narrow || narrow.error().code != errc::narrowing)
      return fail(errc::invalid_argument, "narrowing was not refused");
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

TEST_CASE("optimizer state that is laid out like the parameters is saved by parameter") {
  std::vector<std::string> keys;
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    small_model m(comm.rank(), 2, dtype::float32, "state._fsdp_wrapped_module.net");
    m.model.units.push_back(m.model.units[0]);
    m.model.units[0].key_suffix = ".exp_avg";
    m.model.units[1].key_suffix = ".exp_avg_sq";
    auto saved = sharded_state_dict<host_tensor>(m.model, comm);
    if (!saved) return std::move(saved).error();
    if (comm.rank() == 0)
      for (const path& p : saved->state.spec().leaf_paths()) keys.emplace_back(p[0].name());
    return {};
  });
  REQUIRE(ran);
  CHECK(keys == std::vector<std::string>{"state.net.a.exp_avg", "state.net.b.exp_avg", "state.net.c.exp_avg",
                                         "state.net.a.exp_avg_sq", "state.net.b.exp_avg_sq", "state.net.c.exp_avg_sq"});
}

TEST_CASE("whole tensors that one rank has are loaded by all, under any name of a parameter") {
  std::vector<std::vector<float>> shards(3);
  std::vector<load_state_report> reports(3);
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    small_model m(comm.rank(), 3);
    state dict;
    if (comm.rank() == 2) {
      if (auto done = dict.set(path{"net.a"}, filled({3, 2}, 1)); !done) return done;
      if (auto done = dict.set(path{"net.c"}, filled({5}, 2)); !done) return done;
    }
    auto report = load_state_dict(m.model, dict, comm, {.mode = load_mode::report});
    if (!report) return std::move(report).error();
    reports[static_cast<std::size_t>(comm.rank())] = *report;
    shards[static_cast<std::size_t>(comm.rank())] = m.shard;
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  REQUIRE(ran);
  CHECK(shards == std::vector<std::vector<float>>{{1, 1, 1, 1}, {1, 1, 2, 2}, {2, 2, 2, 0}});
  CHECK(reports[0].entries == std::vector<load_entry>{{"net.a", load_status::loaded},
                                                      {"net.b", load_status::missing},
                                                      {"net.c", load_status::loaded}});
  CHECK(reports[1].entries == reports[0].entries);
}

TEST_CASE("a state dict that does not fit is the same error on every rank, with its keys") {
  const auto load = [](any_communicator& comm, const std::string& key, host_tensor tensor, std::int32_t on_rank,
                       load_state_options options = {}) -> result<load_state_report> {
    small_model m(comm.rank(), 3);
    state dict;
    dict.set(path{"net.a"}, filled({3, 2}, 1)).value();
    dict.set(path{"net.b"}, filled({5}, 1)).value();
    dict.set(path{"net.c"}, filled({5}, 1)).value();
    if (comm.rank() == on_rank) dict.set(path{key}, std::move(tensor)).value();
    auto made = load_state_dict(m.model, dict, comm, options);
    if (!made && m.shard != small_model(comm.rank(), 3).shard) return fail(errc::invalid_argument, "the model changed");
    return made;
  };
  const auto all_say = [](const std::vector<std::string>& texts, const std::vector<std::string>& parts) {
    CHECK(texts.size() == 3);
    for (const std::string& text : texts)
      for (const std::string& part : parts) CHECK_THAT(text, ContainsSubstring(part));
  };
  all_say(errors_of(3, [&](any_communicator& c) { return load(c, "net.a", filled({2, 3}, 1), 1); }),
          {"net.a", "rank 1", "[3, 2]", "[2, 3]"});
  all_say(errors_of(3, [&](any_communicator& c) { return load(c, "net.b", filled({5}, 1, dtype::float64), 2); }),
          {"net.b", "ranks 0, 2", "float32", "float64"});
  all_say(errors_of(3, [&](any_communicator& c) { return load(c, "net.x", filled({5}, 1), 0); }), {"unexpected net.x"});
  all_say(errors_of(3,
                    [&](any_communicator& c) {
                      small_model m(c.rank(), 3);
                      return load_state_dict(m.model, state(), c);
                    }),
          {"missing net.a, net.b, net.c"});
  all_say(errors_of(3,
                    [&](any_communicator& c) -> result<load_state_report> {
                      small_model m(c.rank(), 3);
                      state dict;
                      dict.set(path{"net.a"}, 1.5).value();
                      return load_state_dict(m.model, dict, c);
                    }),
          {"net.a", "a tensor", "float"});
}

TEST_CASE("ranks that describe different models all get an error that names the key") {
  for (const std::string& text : errors_of(3, [](any_communicator& comm) {
         small_model m(comm.rank(), 3);
         if (comm.rank() == 1) m.model.units[0].prefix = "nut";
         return sharded_state_dict<host_tensor>(m.model, comm);
       }))
    CHECK_THAT(text, ContainsSubstring("net.a") || ContainsSubstring("nut.a"));
  for (const std::string& text : errors_of(3, [](any_communicator& comm) {
         small_model m(comm.rank(), 3);
         if (comm.rank() == 1) m.model.units[0].shard.sizes = {2};
         return full_state_dict<host_tensor>(m.model, comm);
       })) {
    CHECK_THAT(text, ContainsSubstring("net.a") && ContainsSubstring("rank 1"));
    CHECK_THAT(text, ContainsSubstring("[4]") && ContainsSubstring("[2]"));
  }
}

TEST_CASE("options that make no sense are errors with the key") {
  const small_model m(0, 2);
  CHECK_THAT(to_string(plan_sharded(m.model, 0, {.dim = 1}).error()),
             ContainsSubstring("net.b") && ContainsSubstring("no such dimension"));
  CHECK_THAT(to_string(plan_full(m.model, 0, {.rank0_only = true, .rank = 2}).error()), ContainsSubstring("2"));
  CHECK_THAT(to_string(plan_full(m.model, 5).error()), ContainsSubstring("5"));
  CHECK_THAT(
      to_string(plan_sharded(m.model, 0, {.form = sharded_form::dtensor, .mesh = device_mesh::make(extents{3}).value()})
                    .error()),
      ContainsSubstring("net.a") && ContainsSubstring("beyond"));
  CHECK_THAT(to_string(plan_sharded(m.model, 0,
                                    {.form = sharded_form::dtensor,
                                     .mesh = device_mesh::make(extents{2}).value(),
                                     .placements = {placement::partial(reduce_op::sum)}})
                           .error()),
             ContainsSubstring("Partial"));
}

TEST_CASE("metadata of shards names global ranks") {
  const small_model m(1, 2);
  const auto planned = plan_sharded(m.model, 1, {.ranks = rank_group::make({7, 3}).value()}).value();
  CHECK(to_string(planned[0].metadata.shards[0]) == "[0:2, 0:2) on rank:7/cpu");
  CHECK(to_string(planned[0].metadata.shards[1]) == "[2:3, 0:2) on rank:3/cpu");
  CHECK(planned[0].own_shard == 1);
  CHECK(planned[0].local == extents{1, 2});
}

TEST_CASE("a local state dict of another number of ranks loads") {
  // Saved by 2 ranks, loaded by 3: the flat shards are found by their boxes.
  std::vector<std::optional<host_tensor>> saved(2);
  REQUIRE(run_ranks(2, [&](any_communicator& comm) -> result<void> {
    const small_model m(comm.rank(), 2);
    auto made = local_state_dict<host_tensor>(m.model, comm.rank());
    if (!made) return std::move(made).error();
    auto shards = std::move(*made->state.find(path{"net._flat_param"})->sharded_tensor()).take_local_shards();
    saved[static_cast<std::size_t>(comm.rank())] = std::move(shards[0].tensor());
    return {};
  }));
  std::vector<std::vector<float>> loaded(3), expected(3);
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    small_model m(comm.rank(), 3);
    expected[static_cast<std::size_t>(comm.rank())] = m.shard;
    std::fill(m.shard.begin(), m.shard.end(), 0.0F);
    std::vector<shard<host_tensor>> own;
    sharded_tensor_metadata metadata;
    metadata.size = {11};
    metadata.shards = {
        shard_metadata::make(std::vector<std::int64_t>{0}, std::vector<std::int64_t>{6}, "rank:0/cpu").value(),
        shard_metadata::make(std::vector<std::int64_t>{6}, std::vector<std::int64_t>{5}, "rank:1/cpu").value()};
    if (comm.rank() < 2) {
      auto tensor = saved[static_cast<std::size_t>(comm.rank())]->clone();
      own.push_back(
          shard<host_tensor>::make(*std::move(tensor), metadata.shards[static_cast<std::size_t>(comm.rank())]).value());
    }
    state dict;
    auto made = sharded_tensor<host_tensor>::make(std::move(own), metadata, rank_group::world(3), comm.rank());
    if (!made) return std::move(made).error();
    if (auto done = dict.set(path{"net._flat_param"}, *std::move(made)); !done) return done;
    auto report = load_state_dict(m.model, dict, comm);
    if (!report) return std::move(report).error();
    loaded[static_cast<std::size_t>(comm.rank())] = m.shard;
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  REQUIRE(ran);
  CHECK(loaded == expected);
}
