// SPDX-License-Identifier: Apache-2.0
// Compares the tensor-parallel extension with PyTorch's DTensorExtensions (golden/seeds/tp_fsdp.json), field by field,
// and gathers the chunks again. Test tensors hold their own row-major index. The chunks themselves are in
// golden_chunk_test.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <differences.hpp>
#include <elements.hpp>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.fsdp;
import shardmesh.test.layouts;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

using elements::numbers;
using golden::to_extents;
using golden::to_json;
using value = state_value<host_tensor>;

// The tensor whose elements are their row-major indices.
host_tensor whole(const extents& shape) {
  auto made = host_tensor::make(dtype::int64, shape).value();
  auto* values = reinterpret_cast<std::int64_t*>(adapter<host_tensor>::view(made).data);
  std::iota(values, values + box::whole(shape).volume(), std::int64_t{0});
  return made;
}

// A rank's part of a layout.
host_tensor local_of(const layout& l, std::int32_t rank) {
  auto made = host_tensor::make(dtype::int64, l.local_shape(rank)).value();
  const host_tensor all = whole(l.shape());
  for (const placed_box& b : l.boxes(rank))
    if (!copy(subview(adapter<host_tensor>::view(made), {b.local_offsets, b.where.sizes}),
              subview(adapter<host_tensor>::view(all), b.where)))
      std::abort();
  return made;
}

numbers values_of(const host_tensor& tensor) {
  const auto* values = reinterpret_cast<const std::int64_t*>(tensor.bytes().data());
  return {values, values + tensor.bytes().size() / sizeof(std::int64_t)};
}

}  // namespace

TEST_CASE("parameters are flattened and unflattened as PyTorch's extension does it", "[tp_fsdp]") {
  golden::differences differences("tp_fsdp", "extensions");
  const json& cases = golden::file("seeds/tp_fsdp.json").at("extensions");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    const extents shape = to_extents(c["shape"]);
    const device_mesh mesh = device_mesh::make(to_extents(c["mesh"])).value();
    const tensor_parallel_extension extension{mesh};
    REQUIRE(c["ranks"].size() == static_cast<std::size_t>(mesh.size()));
    for (std::int32_t r = 0; r < mesh.size(); ++r) {
      CAPTURE(to_string(shape), to_string(mesh), r);
      const bool is_plain = c["placements"].is_null();
      value input = whole(shape);
      if (!is_plain) {
        const layout l = layout::make(mesh, {golden::short_placement(c["placements"][0])}, shape).value();
        input = dtensor<host_tensor>::make(l, r, local_of(l, r)).value();
      }
      const auto* data = (is_plain ? *input.tensor() : input.dtensor()->local()).bytes().data();
      auto flat = extension.pre_flatten_transform(std::move(input)).value();
      json ours{{"flat", answers::holds(values_of(flat.local), flat.local.sizes(), shape)},
                {"same_object", flat.local.bytes().data() == data},
                {"extension", nullptr}};
      REQUIRE(flat.placed.has_value() == !is_plain);
      if (flat.placed) {
        ours["extension"] = {{"mesh", answers::mesh(flat.placed->mesh())},
                             {"placements", answers::placements(flat.placed->placements())},
                             {"shape", to_json(flat.placed->shape())},
                             {"stride", to_json(contiguous_strides(flat.placed->shape()))}};
        const auto back = extension.post_unflatten_transform(std::move(flat.local), *flat.placed, r).value();
        ours["post_unflatten"] = {{"shape", to_json(back.size())},
                                  {"stride", to_json(contiguous_strides(back.size()))},
                                  {"placements", answers::placements(back.layout().placements())},
                                  {"local", answers::holds(values_of(back.local()), back.local().sizes(), shape)}};
      }
      differences.compare(std::to_string(i) + "/ranks/" + std::to_string(r), c["ranks"][static_cast<std::size_t>(r)],
                          ours, "autograd");
    }
  }
  differences.finish();
}

TEST_CASE("dtensors are chunked without sending, and gathered again, where PyTorch is right and where it is not",
          "[tp_fsdp]") {
  int gathered = 0;
  for (const json& c : golden::file("seeds/tp_fsdp.json").at("chunk_dtensor")) {
    const extents shape = to_extents(c["shape"]);
    const device_mesh mesh = device_mesh::make(to_extents(c["mesh"])).value();
    const std::string kind = c["kind"];
    if (!c["names"].get<std::string>().ends_with("tp")) continue;  // PyTorch refuses a mesh without tensor parallelism
    const std::size_t fsdp_dim = mesh.rank() - 2;
    const tensor_parallel_extension extension{mesh, fsdp_dim};
    CAPTURE(c["names"].get<std::string>(), to_string(mesh), to_string(shape), kind);
    std::vector<std::optional<dtensor<host_tensor>>> made(static_cast<std::size_t>(mesh.size()));
    int without = 0;
    for (std::int32_t r = 0; r < mesh.size(); ++r) {
      CAPTURE(r);
      // As in PyTorch, the dtensors are over this rank's row in the mesh dimension tp.
      std::vector<std::int32_t> row;
      extents at = *mesh.coordinate_of(r);
      for (at[mesh.rank() - 1] = 0; at[mesh.rank() - 1] < mesh.sizes()[mesh.rank() - 1]; ++at[mesh.rank() - 1])
        row.push_back(mesh.rank_at(at));
      const device_mesh tp = device_mesh::make(extents{mesh.sizes()[mesh.rank() - 1]}, {}, row).value();
      value input;
      if (kind == "plain") {
        input = whole(shape);
      } else {
        const placement p = kind == "dtR" ? placement::replicate() : placement::shard(kind == "dt0" ? 0 : 1);
        const auto l = layout::make(tp, {p}, shape);
        if (!l) break;  // Shard(1) of a 1-d tensor
        input = dtensor<host_tensor>::make(*l, r, local_of(*l, r)).value();
      }
      auto chunk = extension.chunk_dtensor(input, r);
      if (!chunk) {
        CHECK(chunk.error().code == errc::unsupported);
        CHECK_THAT(to_string(chunk.error()), ContainsSubstring("sharded_state_dict"));
        ++without;
        continue;
      }
      CHECK(chunk->size() == shape);
      CHECK(values_of(chunk->local()) == values_of(local_of(chunk->layout(), r)));
      const auto& placements = chunk->layout().placements();
      if (kind == "dt0" && shape.rank() > 0 && mesh.sizes()[mesh.rank() - 1] > 1)
        CHECK(placements[fsdp_dim] == placement::strided_shard(0, mesh.sizes()[mesh.rank() - 1]));
      made[static_cast<std::size_t>(r)] = *std::move(chunk);
    }
    CHECK((without == 0 || without == mesh.size()));  // all ranks agree
    if (!made[0]) continue;
    CHECK(check_cover(distribute(made[0]->layout()).value()).ok());
    if (mesh.size() > 4) continue;
    const auto ran = run_ranks(static_cast<std::int32_t>(mesh.size()), [&](any_communicator& comm) -> result<void> {
      const auto& own = *made[static_cast<std::size_t>(comm.rank())];
      auto all = extension.all_gather_dtensor(own, comm);
      if (!all) return std::move(all).error();
      const layout before = gathered_layout(own.layout(), fsdp_dim).value();
      if (values_of(*all) != values_of(local_of(before, comm.rank())))
        return fail(errc::invalid_argument, "other values");
      return {};
    });
    INFO((ran ? "" : to_string(ran.error())));
    CHECK(ran);
    ++gathered;
  }
  CHECK(gathered > 0);
}

TEST_CASE("specs say where this rank's tensor really is, as PyTorch's do", "[tp_fsdp]") {
  golden::differences differences("tp_fsdp", "rewrite_spec");
  const json& cases = golden::file("seeds/tp_fsdp.json").at("rewrite_spec");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    CAPTURE(c.dump());
    const auto places = [](const json& texts) {
      std::vector<remote_device> made;
      for (const json& text : texts) made.push_back(parse_remote_device(text.get<std::string>()).value());
      return made;
    };
    // The file does not record the listed shard's device. It was a GPU, which a list keeps.
    sharding_spec spec = enumerable_sharding_spec{{shard_metadata{{0}, {1}, places({"rank:0/cuda:0"})[0]}}};
    if (c.value("spec", "") != "EnumerableShardingSpec")
      spec = chunk_sharding_spec{c["dim"].get<std::int32_t>(), places(c["placements"])};
    const auto texts = [](const sharding_spec& s) {
      json made = json::array();
      if (const auto* chunks = std::get_if<chunk_sharding_spec>(&s))
        for (const remote_device& p : chunks->placements) made.push_back(to_string(p));
      else
        for (const shard_metadata& m : std::get<enumerable_sharding_spec>(s).shards)
          made.push_back(to_string(*m.placement));
      return made;
    };
    const sharding_spec before = spec;
    const auto made = rewrite_spec_if_needed(spec, parse_device(c["tensor_device"].get<std::string>()).value(),
                                             c["rank"].get<std::int32_t>());
    json theirs = c;
    for (const char* question : {"dim", "placements", "tensor_device", "rank", "spec"}) theirs.erase(question);
    json ours{{"same_object", made == before}, {"result", texts(made)}};
    if (std::holds_alternative<chunk_sharding_spec>(spec)) ours["input_after"] = texts(spec);
    differences.compare(std::to_string(i), theirs, ours, "");
  }
  differences.finish();
}

TEST_CASE("devices of ranks are PyTorch's, and an error where it divides by zero", "[tp_fsdp]") {
  golden::differences differences("tp_fsdp", "remote_device_str");
  const json& cases = golden::file("seeds/tp_fsdp.json").at("remote_device_str");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    CAPTURE(c.dump());
    const auto made = remote_device_of(c["rank"].get<std::int32_t>(), c["device_type"].get<std::string>(),
                                       c["num_devices_per_node"].get<std::int32_t>());
    differences.compare(std::to_string(i), c["result"], made ? json(to_string(*made)) : golden::refusal(made.error()),
                        made ? "one spelling of a device" : "no devices");
  }
  differences.finish();
}

TEST_CASE("a unit that is flattened by the extension saves what was put in") {
  const device_mesh mesh = device_mesh::make(extents{2, 2, 2}, {"replicate", "shard", "tp"}).value();
  const std::vector<placement> up{placement::replicate(), placement::replicate(), placement::shard(0)};
  const std::vector<placement> down{placement::replicate(), placement::replicate(), placement::shard(1)};
  const auto ran = run_ranks(8, [&](any_communicator& comm) -> result<void> {
    const tensor_parallel_extension extension{mesh, 1};
    const auto cut = [&](const extents& shape, const std::vector<placement>& placements) {
      const layout l = layout::make(mesh, placements, shape).value();
      return value(dtensor<host_tensor>::make(l, comm.rank(), local_of(l, comm.rank())).value());
    };
    std::vector<named_parameter<host_tensor>> parameters;
    parameters.push_back({"up", cut({7, 3}, up)});
    parameters.push_back({"norm", value(whole({5}))});
    parameters.push_back({"down", cut({4, 6}, down)});
    auto made = flatten_parameters<host_tensor>(std::move(parameters), extension, mesh, 1, comm.rank(),
                                                {.prefix = "mlp", .alignment = 2, .shared = {{"tied", "norm"}}});
    if (!made) return std::move(made).error();
    fsdp_model model{{made->unit}};
    auto full = full_state_dict<host_tensor>(model, comm);
    if (!full) return std::move(full).error();
    for (const auto& [key, shape] : {std::pair{"mlp.up", extents{7, 3}}, std::pair{"mlp.norm", extents{5}},
                                     std::pair{"mlp.down", extents{4, 6}}, std::pair{"mlp.tied", extents{5}}}) {
      const auto* found = full->state.find(path{key});
      if (!found || values_of(*found->tensor()) != values_of(whole(shape)))
        return fail(errc::invalid_argument, "other values").with_key(key);
    }
    auto sharded = sharded_state_dict<host_tensor>(model, comm, {.form = sharded_form::dtensor});
    if (!sharded) return std::move(sharded).error();
    const auto placements = [&](const char* key) {
      return to_string(sharded->state.find(path{key})->dtensor()->layout().placements());
    };
    if (placements("mlp.up") != "R, SS(0,2), S(0)" || placements("mlp.norm") != "R, S(0), R" ||
        placements("mlp.down") != "R, S(0), S(1)")
      return fail(errc::invalid_argument, "other placements").with_key(placements("mlp.up"));
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

TEST_CASE("even tensor parallelism whose chunks are the flat shards moves nothing") {
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();
  const auto unit =
      parallel_parameters::make(mesh, 4, {{"w", {8, 6}, {placement::replicate(), placement::shard(0)}}}).value();
  fsdp_model model{{parallel_unit("", unit, 0, {nullptr, dtype::float32, {}, {12}, {1}})}};
  for (const sharded_form form : {sharded_form::dtensor, sharded_form::sharded_tensor}) {
    const auto planned = plan_sharded(model, 0, {.form = form}).value();
    CHECK(plan_of(planned).value().bytes_moved() == 0);
    CHECK(planned[0].local == extents{2, 6});
  }
  const auto local = plan_local(model, 0).value();
  CHECK(local[0].shape == extents{48});  // both columns, one after the other
  CHECK(local[0].metadata.shards.size() == 4);
}

TEST_CASE("parallel parameters that make no sense are errors with the name") {
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();
  const auto text = [&](parallel_parameter_info info, parallel_options options = {}, std::int32_t ranks = 4) {
    auto made = parallel_parameters::make(mesh, ranks, {std::move(info)}, {}, options);
    return made ? std::string() : to_string(made.error());
  };
  const placement r = placement::replicate(), s0 = placement::shard(0);
  CHECK_THAT(text({"w", {4}, {s0, r}}), ContainsSubstring("w: ") && ContainsSubstring("in use already"));
  CHECK_THAT(text({"w", {4}, {r, placement::partial(reduce_op::sum)}}),
             ContainsSubstring("w: ") && ContainsSubstring("Partial"));
  CHECK_THAT(text({"w", {4}, {r}}), ContainsSubstring("w: "));
  CHECK_THAT(text({"w", {4}, {r, placement::shard(1)}}), ContainsSubstring("w: "));
  CHECK_THAT(text({"w", {4, 2}, {r, s0}, dtype::float32, true, {0, 0}}),
             ContainsSubstring("w: ") && ContainsSubstring("[0, 0]"));
  CHECK_THAT(text({"w", {4}, {r, s0}}, {.fsdp_dim = 2}), ContainsSubstring("no such dimension"));
  CHECK_THAT(text({"w", {4}, {r, s0}}, {}, 3), ContainsSubstring("beyond"));
  // A rank with several boxes cannot have one shard.
  const device_mesh wide = device_mesh::make(extents{2, 2}).value();
  const auto strided = parallel_parameters::make(wide, 4, {{"w", {8}, {r, placement::strided_shard(0, 2)}}}).value();
  fsdp_model model{{parallel_unit("net", strided, 0, {nullptr, dtype::float32, {}, {2}, {1}})}};
  CHECK_THAT(to_string(plan_sharded(model, 0).error()),
             ContainsSubstring("net.w") && ContainsSubstring("sharded_form::dtensor"));
  const tensor_parallel_extension extension{mesh};
  CHECK_THAT(to_string(extension.pre_flatten_transform(value(1.5)).error()), ContainsSubstring("float"));
}

TEST_CASE("FSDP cuts what segments leave, but no strided shard expresses it on their left") {
  const device_mesh mesh = device_mesh::make({2, 2}, {"tp", "dp"}).value();
  const placement r = placement::replicate(), qkv = placement::shard_segments(0, {8, 4});
  // dp is on the right: it cuts rows 0 to 3, 8, and 9 of the first rank of tp.
  const layout right = strided_chunk_layout(layout::make(mesh, {qkv, r}, {12, 2}).value(), 1, 0).value();
  CHECK(right.placements() == std::vector{qkv, placement::shard(0)});
  CHECK(right.local_shape(1) == extents{3, 2});
  const layout left = layout::make(mesh, {r, qkv}, {12, 2}).value();
  const auto refused = strided_chunk_layout(left, 0, -2);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK_THAT(to_string(refused.error()),
             ContainsSubstring("FSDP on mesh dimension 0") && ContainsSubstring("SG(0,8:4) of mesh dimension 1"));
  CHECK(strided_chunk_layout(left, 0, 1).value().placements() == std::vector{placement::shard(1), qkv});
}

TEST_CASE("a flat parameter of a fused tensor has the rows of every segment") {
  const device_mesh mesh = device_mesh::make({2, 2}).value();
  const placement r = placement::replicate(), qkv = placement::shard_segments(0, {4, 2});
  const auto unit = parallel_parameters::make(mesh, 4, {{"qkv", {6, 2}, {r, qkv}}}).value();
  CHECK(unit.placed(0).local_shape(1) == extents{3, 2});
  const distribution all = distribution_of(unit, 0).value();
  CHECK(check_cover(all).ok());
  // Rank 1 is first of two in the column of rows 2, 3, and 5: it holds the first half of these six elements.
  std::vector<box> held;
  all.fragments_of(1, [&](const fragment& f) { return held.push_back(f.where), true; });
  CHECK(held == std::vector<box>{{{2, 0}, {1, 2}}, {{3, 0}, {1, 1}}});
}

TEST_CASE("ranks that describe different tensor parallelism all get an error that names the parameter") {
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();
  std::vector<std::string> texts(4);
  const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    const placement cut = placement::shard(comm.rank() == 3 ? 1 : 0);
    const auto unit =
        parallel_parameters::make(mesh, 4, {{"w", {4, 4}, {placement::replicate(), cut}, dtype::int64}}).value();
    numbers memory(4);
    fsdp_model model{{parallel_unit("net", unit, comm.rank(),
                                    {reinterpret_cast<std::byte*>(memory.data()), dtype::int64, {}, {4}, {1}})}};
    auto made = full_state_dict<host_tensor>(model, comm);
    texts[static_cast<std::size_t>(comm.rank())] = made ? "" : to_string(made.error());
    return {};
  });
  REQUIRE(ran);
  for (const std::string& text : texts) CHECK_THAT(text, ContainsSubstring("net.w") && ContainsSubstring("rank"));
}

TEST_CASE("optimizer state and buffers of a model under tensor parallelism are saved and loaded like its parameters") {
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();
  std::vector<std::string> problems(4);
  const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    const auto unit =
        parallel_parameters::make(
            mesh, 4,
            {{"w", {5, 3}, {placement::replicate(), placement::shard(0)}, dtype::int64}, {"b", {3}, {}, dtype::int64}})
            .value();
    const auto size = static_cast<std::size_t>(unit.flat(*unit.column_of(comm.rank())).sharded_numel());
    numbers weights(size, 1), momenta(size, 2), buffer{7, 8};
    const auto view = [](numbers& values) {
      return tensor_view{reinterpret_cast<std::byte*>(values.data()),
                         dtype::int64,
                         {},
                         {static_cast<std::int64_t>(values.size())},
                         {1}};
    };
    fsdp_model model{{parallel_unit("net", unit, comm.rank(), view(weights)),
                      parallel_unit("state.net", unit, comm.rank(), view(momenta), ".exp_avg")}};
    model.tensors = {{"net.mean", view(buffer)}};
    auto saved = sharded_state_dict<host_tensor>(model, comm, {.form = sharded_form::dtensor});
    if (!saved) return std::move(saved).error();
    const auto* momentum = saved->state.find(path{"state.net.w.exp_avg"});
    if (!momentum || to_string(momentum->dtensor()->layout().placements()) != "SS(0,2), S(0)")
      problems[static_cast<std::size_t>(comm.rank())] = "no optimizer state as laid out";
    const numbers expected = momenta;
    std::fill(weights.begin(), weights.end(), 0);
    std::fill(momenta.begin(), momenta.end(), 0);
    buffer = {0, 0};
    if (auto report = load_state_dict(model, saved->state, comm); !report) return std::move(report).error();
    // Padding at the end is not written.
    const auto held = static_cast<std::ptrdiff_t>(
        unit.flat(*unit.column_of(comm.rank())).shard_range(*unit.group().position(comm.rank())).size);
    if (!std::equal(momenta.begin(), momenta.begin() + held, expected.begin()) || buffer != numbers{7, 8})
      problems[static_cast<std::size_t>(comm.rank())] += "loaded something else";
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  REQUIRE(ran);
  CHECK(problems == std::vector<std::string>(4));
}
