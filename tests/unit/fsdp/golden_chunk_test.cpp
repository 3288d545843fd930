// SPDX-License-Identifier: Apache-2.0
// Compares chunks of tensors, which tensor parallelism may have cut already, with PyTorch's
// (golden/seeds/tp_fsdp.json): every field of every answer. tests/data/differences/tp_fsdp.json lists the differences.
// Test tensors hold their own row-major index, so a rank's part is a list of numbers. Where PyTorch is wrong, refuses,
// or does not answer, the test also checks against the numbers of the whole tensor.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <differences.hpp>
#include <elements.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>
import shardmesh.fsdp;
import shardmesh.test.layouts;

using namespace shardmesh;
using nlohmann::json;

namespace {

using elements::numbers;
using golden::to_extents;
using golden::to_json;

numbers sorted(numbers values) {
  std::sort(values.begin(), values.end());
  return values;
}

// A rank's elements in a layout, in local order.
numbers held_numbers(const layout& l, std::int32_t rank) {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;  // local number, element
  const extents local = l.local_shape(rank);
  for (const placed_box& b : l.boxes(rank)) {
    const numbers elements = elements::in(b.where, l.shape());
    const numbers places = elements::in(box{b.local_offsets, b.where.sizes}, local);
    for (std::size_t i = 0; i < elements.size(); ++i) found.emplace_back(places[i], elements[i]);
  }
  std::sort(found.begin(), found.end());
  numbers made;
  for (const auto& one : found) made.push_back(one.second);
  return made;
}

host_tensor tensor_of(const numbers& values, const extents& sizes, dtype type) {
  auto made = host_tensor::make(type, sizes).value();
  numbers copied = values;
  const tensor_view from{
      reinterpret_cast<std::byte*>(copied.data()), dtype::int64, {}, sizes, contiguous_strides(sizes)};
  if (!copy(adapter<host_tensor>::view(made), from)) std::abort();
  return made;
}

numbers values_of(const host_tensor& tensor) {
  numbers values(static_cast<std::size_t>(box::whole(tensor.sizes()).volume()));
  const tensor_view to{reinterpret_cast<std::byte*>(values.data()),
                       dtype::int64,
                       {},
                       tensor.sizes(),
                       contiguous_strides(tensor.sizes())};
  if (!copy(to, adapter<host_tensor>::view(tensor))) std::abort();
  return values;
}

// A rank's box, in PyTorch's form if there is one; null for a rank outside the mesh.
json box_json(const layout& l, std::int32_t rank) {
  if (!l.mesh().coordinate_of(rank)) return {};
  const std::vector<placed_box> boxes = l.boxes(rank);
  if (boxes.size() == 1) return answers::box(boxes[0].where);
  if (boxes.empty()) return answers::box(box{l.first_index(rank), l.local_shape(rank)});
  json all = json::array();
  for (const placed_box& b : boxes) all.push_back(answers::box(b.where));
  return {{"boxes", all}};
}

// Whether the box that PyTorch claims matches the tensor's content.
bool is_true(const json& claimed, const json& holds) {
  if (!claimed.is_array() || claimed[1] != holds["shape"]) return false;
  return holds.contains("box") ? claimed == holds["box"] : !holds.contains("index") && !holds.contains("linear");
}

json spelled(const sharded_tensor<host_tensor>& st, const extents& whole) {
  json made = answers::metadata(st.metadata());
  made["group"] = st.group().globals();
  made["spec"] = answers::spec(infer_sharding_spec_from_shards_metadata(st.metadata().shards));
  made["local"] = json::array();
  for (const auto& s : st.local_shards()) {
    json one = answers::shard(s.metadata());
    if (s.is_nested())
      one["inner"] = spelled(s.nested(), whole);
    else
      one["holds"] = answers::holds(values_of(s.tensor()), s.tensor().sizes(), whole);
    made["local"].push_back(std::move(one));
  }
  return made;
}

template <class T>
json spelled(const result<T>& made, const extents& whole) {
  return made ? spelled(*made, whole) : golden::refusal(made.error());
}

json without(json answer, const std::vector<std::string>& questions) {
  for (const std::string& field : questions) answer.erase(field);
  return answer;
}

}  // namespace

TEST_CASE("boxes of layouts are exact on every mesh, also where PyTorch's are not", "[tp_fsdp]") {
  golden::differences differences("tp_fsdp", "boxes");
  const json& cases = golden::file("seeds/tp_fsdp.json").at("boxes");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    const extents shape = to_extents(c["shape"]);
    std::vector<placement> placements;
    for (const json& p : c["placements"]) placements.push_back(golden::short_placement(p.get<std::string>()));
    // Some meshes leave out ranks of the world, which then hold nothing.
    std::vector<std::int32_t> members;
    for (std::size_t r = 0; r < c["ranks"].size(); ++r)
      if (!c["ranks"][r]["coordinate"].is_null()) members.push_back(static_cast<std::int32_t>(r));
    const auto mesh = device_mesh::make(to_extents(c["mesh"]), {}, members).value();
    const layout l = layout::make(mesh, placements, shape).value();
    CAPTURE(to_string(l));
    REQUIRE(c["ranks"].size() == c["world"].get<std::size_t>());
    json ours{{"all_local_boxes_ok", true}, {"ranks", json::array()}};
    for (std::size_t r = 0; r < c["ranks"].size(); ++r) {
      CAPTURE(r);
      const auto own = static_cast<std::int32_t>(r);
      const json& theirs = c["ranks"][r];
      const auto coordinate = mesh.coordinate_of(own);
      json rank{{"coordinate", coordinate ? to_json(*coordinate) : json()},
                {"placements", answers::placements(l.placements())},
                {"local", coordinate ? answers::holds(held_numbers(l, own), l.local_shape(own), shape) : json()},
                {"get_box", box_json(l, own)},
                {"get_box_for", json::array()},
                {"get_local_box", box_json(l, own)},
                {"local_box_ok", theirs["local"].contains("box") && theirs["get_local_box"] == theirs["local"]["box"]}};
      for (const std::int32_t other : members) rank["get_box_for"].push_back(box_json(l, other));
      if (coordinate) ours["all_local_boxes_ok"] = ours["all_local_boxes_ok"] == true && rank["local_box_ok"] == true;
      const auto metadata = shards_of_layout(l, {.type = dtype::int64}, own, {}, {});
      json all = metadata ? answers::metadata(*metadata) : golden::refusal(metadata.error());
      rank["shard_md"] = metadata ? json() : all;
      for (const json& m : all.value("shards", json::array()))
        if (m["placement"] == "rank:" + std::to_string(r) + "/cpu")
          rank["shard_md"] = rank["shard_md"].is_null() ? m : json{{"several", {rank["shard_md"], m}}};
      if (coordinate) {
        rank["dt_pg"] = answers::mesh(mesh)["ranks"];
        rank["st_md"] = std::move(all);
      }
      ours["ranks"].push_back(std::move(rank));
      // Our metadata has the right boxes and owners for every rank; PyTorch's owners are invented.
      REQUIRE(metadata.has_value() == (l.reduction() == reduce_op::none));
      if (!metadata) continue;
      numbers covered;
      for (const shard_metadata& m : metadata->shards) {
        const numbers elements = elements::in(m.where(), shape);
        covered.insert(covered.end(), elements.begin(), elements.end());
        const numbers held = sorted(held_numbers(l, *m.rank()));
        for (const std::int64_t e : elements) CHECK(std::binary_search(held.begin(), held.end(), e));
      }
      CHECK(sorted(covered) == elements::in(box::whole(shape), shape));
    }
    const auto is = [&](placement_kind kind) {
      return std::any_of(placements.begin(), placements.end(), [&](const placement& p) { return p.kind == kind; });
    };
    const std::string rule = mesh.size() < c["world"].get<std::int64_t>() ? "ranks outside the mesh"
                             : is(placement_kind::partial)                ? "partial"
                             : is(placement_kind::strided_shard)          ? "strided shards"
                             : mesh.rank() > 1                            ? "mesh of several dimensions"
                                                                          : "mesh of one dimension";
    differences.compare(std::to_string(i), without(c, {"world", "mesh", "shape", "placements"}), ours, rule);
  }
  differences.finish();
}

TEST_CASE("chunks of a whole tensor are PyTorch's", "[tp_fsdp]") {
  golden::differences differences("tp_fsdp", "create_chunk_sharded_tensor");
  const json& cases = golden::file("seeds/tp_fsdp.json").at("create_chunk_sharded_tensor");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    const extents shape = to_extents(c["shape"]);
    const dtype type = parse_dtype(c["dtype"].get<std::string>()).value();
    const auto group = rank_group::make(c["group"].get<std::vector<std::int32_t>>()).value();
    CAPTURE(to_string(shape), to_string(group), c["dtype"].get<std::string>());
    numbers all(static_cast<std::size_t>(box::whole(shape).volume()));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    const host_tensor whole = tensor_of(all, shape, type);
    numbers covered;
    json ours{{"ranks", json(c["world"].get<std::size_t>(), json())}};
    for (std::int32_t r = 0; r < group.size(); ++r) {
      const auto made = create_chunk_sharded_tensor<host_tensor>(whole, r, group).value();
      for (const auto& one : made.local_shards()) {
        CHECK(one.tensor().type() == type);
        CHECK(values_of(one.tensor()) == elements::in(one.metadata().where(), shape));
        const numbers held = values_of(one.tensor());
        covered.insert(covered.end(), held.begin(), held.end());
      }
      json answer = spelled(made, shape);
      ours["ranks"][static_cast<std::size_t>(group.global(r))] = {{"local", std::move(answer["local"])}};
      answer.erase("local");
      if (r > 0) REQUIRE(answer == ours["result"]);  // all ranks agree
      ours["result"] = std::move(answer);
    }
    ours["tiles"] = sorted(covered) == all;
    CHECK(ours["tiles"] == true);
    differences.compare(std::to_string(i), without(c, {"world", "shape", "dtype", "group"}), ours,
                        shape.rank() == 0  ? "scalars"
                        : group.is_world() ? "empty chunks"
                                           : "sub-groups");
  }
  differences.finish();
}

TEST_CASE("chunks of a tensor that is sharded already hold what their boxes say, on every rank", "[tp_fsdp]") {
  golden::differences differences("tp_fsdp", "chunk_tensor");
  const json& cases = golden::file("seeds/tp_fsdp.json").at("chunk_tensor");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    const extents shape = to_extents(c["shape"]), mesh_sizes = to_extents(c["mesh"]);
    const std::string kind = c["kind"];
    const device_mesh mesh = device_mesh::make(mesh_sizes).value();
    CAPTURE(to_string(shape), to_string(mesh_sizes), kind);
    REQUIRE(c["ranks"].size() == static_cast<std::size_t>(mesh.size()));
    numbers covered;
    numbers all(static_cast<std::size_t>(box::whole(shape).volume()));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    for (std::int32_t r = 0; r < mesh.size(); ++r) {
      CAPTURE(r);
      const extents at = *mesh.coordinate_of(r);
      std::vector<std::int32_t> dp_ranks, tp_ranks;
      for (std::int64_t k = 0; k < mesh_sizes[0]; ++k) dp_ranks.push_back(mesh.rank_at({k, at[1]}));
      for (std::int64_t k = 0; k < mesh_sizes[1]; ++k) tp_ranks.push_back(mesh.rank_at({at[0], k}));
      const auto dp = rank_group::make(dp_ranks).value(), tp = rank_group::make(tp_ranks).value();
      const auto dp_rank = static_cast<std::int32_t>(at[0]), tp_rank = static_cast<std::int32_t>(at[1]);
      const host_tensor whole = tensor_of(all, shape, dtype::int64);
      json input;
      const auto chunked = [&]() -> result<sharded_tensor<host_tensor>> {
        if (kind == "plain") return create_chunk_sharded_tensor<host_tensor>(whole, dp_rank, dp);
        if (kind.starts_with("st")) {
          const auto cut =
              create_chunk_sharded_tensor<host_tensor>(whole, tp_rank, tp, {.dim = std::stoi(kind.substr(2))});
          input = spelled(cut, shape);
          if (!cut) return cut.error();
          return chunk_tensor<host_tensor>(*cut, dp_rank, dp);
        }
        const placement p = kind == "dtR" ? placement::replicate() : placement::shard(std::stoi(kind.substr(2)));
        // The tp mesh of this row, whose ranks are positions in the group.
        const layout l = layout::make(device_mesh::make(extents{mesh_sizes[1]}).value(), {p}, shape).value();
        const numbers held = held_numbers(l, tp_rank);
        input = {{"placements", answers::placements(l.placements())},
                 {"mesh_ranks", tp_ranks},
                 {"local", answers::holds(held, l.local_shape(tp_rank), shape)}};
        auto cut = dtensor<host_tensor>::make(l, tp_rank, tensor_of(held, l.local_shape(tp_rank), dtype::int64));
        if (!cut) return std::move(cut).error();
        return chunk_tensor<host_tensor>(*cut, dp_rank, dp, tp);
      };
      auto made = chunked();
      REQUIRE(made);
      json ours{{"result", spelled(*made, shape)}};
      if (!input.is_null()) ours["input"] = input;
      numbers held;
      for (const auto& outer : made->local_shards()) {
        const auto take = [&](const shard<host_tensor>& one, const extents& origin) {
          const numbers values = values_of(one.tensor());
          CHECK(values == elements::in(shifted(one.metadata().where(), origin), shape));
          held.insert(held.end(), values.begin(), values.end());
        };
        if (!outer.is_nested()) take(outer, extents::filled(shape.rank(), 0));
        if (outer.is_nested())
          for (const auto& inner : outer.nested().local_shards()) take(inner, outer.metadata().offsets);
      }
      // Ranks along tp hold replicas; one of them is enough for the cover.
      if ((kind != "plain" && kind != "dtR") || at[1] == 0) covered.insert(covered.end(), held.begin(), held.end());

      // Loading turns the chunk into the inner tensor; flattening gives its flat form.
      const bool is_inner = made->nesting() > 0;
      const auto inner = tensor_parallel_extension{mesh}.pre_load_state_dict_transform(*std::move(made));
      ours["pre_load"] = spelled(inner, shape);
      if (inner) {
        CHECK(inner->nesting() == 0);
        ours["pre_load"] = {
            {"is_inner", is_inner}, {"size", ours["pre_load"]["size"]}, {"shards", ours["pre_load"]["local"]}};
      }
      state_dict<host_tensor> dict;
      REQUIRE(dict.set(path{"key"}, chunked().value()));
      const auto flat = flatten_nested_shards(
          std::move(dict), {.policy = nested_policy::torch_compatible, .group = rank_group::world(c["world"])});
      if (!flat)
        ours["flattened"] = golden::refusal(flat.error());
      else if (flat->report.at(0).outcome == nested_outcome::kept)
        ours["flattened"] = "same";
      else if (flat->report[0].outcome == nested_outcome::dropped)
        ours["flattened"] = nullptr;
      else
        ours["flattened"] = spelled(*flat->dict.find(path{"key"})->sharded_tensor(), shape);
      const bool row_0 = at[0] == 0;
      differences.compare(std::to_string(i) + "/ranks/" + std::to_string(r), c["ranks"][static_cast<std::size_t>(r)],
                          ours,
                          kind == "plain"          ? "plain"
                          : kind.starts_with("st") ? "sharded tensor"
                          : !row_0                 ? "dtensor outside the first row"
                          : kind == "dtR"          ? "replicated dtensor"
                                                   : "dtensor");
    }
    CHECK(sorted(covered) == all);
  }
  differences.finish();
}

TEST_CASE("chunked dtensors are PyTorch's where it cuts on the right mesh dimension, and right elsewhere",
          "[tp_fsdp]") {
  for (const char* section : {"chunk_dtensor", "create_chunk_dtensor"}) {
    golden::differences differences("tp_fsdp", section);
    const json& cases = golden::file("seeds/tp_fsdp.json").at(section);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const json& c = cases[i];
      const extents shape = to_extents(c["shape"]);
      const auto names_text = c["names"].get<std::string>();
      std::vector<std::string> names;
      for (std::size_t begin = 0; begin < names_text.size();) {
        const std::size_t end = std::min(names_text.find(' ', begin), names_text.size());
        names.push_back(names_text.substr(begin, end - begin));
        begin = end + 1;
      }
      const device_mesh mesh = device_mesh::make(to_extents(c["mesh"]), names).value();
      REQUIRE(c["ranks"].size() == static_cast<std::size_t>(mesh.size()));
      const std::string kind = c.value("kind", "plain");
      // (dp, tp), (replicate, shard, tp): FSDP's dimension is the last but one; without tp it is the last.
      const bool has_tp = names.back() == "tp";
      const std::size_t fsdp_dim = mesh.rank() - (has_tp && mesh.rank() > 1 ? 2 : 1);
      const tensor_parallel_extension extension{mesh, fsdp_dim};
      CAPTURE(section, names_text, to_string(mesh), to_string(shape), kind);
      std::vector<std::optional<layout>> layouts;
      json ours{{"ranks", json::array()}};
      bool all_claims = true, all_answered = true;
      for (std::int32_t r = 0; r < mesh.size(); ++r) {
        CAPTURE(r);
        const json& theirs = c["ranks"][static_cast<std::size_t>(r)];
        const bool answered = theirs.contains("result") && !golden::refused(theirs["result"]);
        all_answered &= answered;
        json rank{{"coordinate", to_json(*mesh.coordinate_of(r))}};
        const auto chunk = [&]() -> result<dtensor<host_tensor>> {
          numbers all(static_cast<std::size_t>(box::whole(shape).volume()));
          std::iota(all.begin(), all.end(), std::int64_t{0});
          if (kind == "plain")
            return extension.chunk_dtensor(state_value<host_tensor>(tensor_of(all, shape, dtype::int64)), r);
          // As in PyTorch, the dtensors are over this rank's row in the mesh dimension tp.
          std::vector<std::int32_t> row;
          extents at = *mesh.coordinate_of(r);
          std::int64_t& last = at[mesh.rank() - 1];
          for (last = 0; last < mesh.sizes()[mesh.rank() - 1]; ++last) row.push_back(mesh.rank_at(at));
          const device_mesh tp = device_mesh::make(extents{mesh.sizes()[mesh.rank() - 1]}, {}, row).value();
          const placement p = kind == "dtR" ? placement::replicate() : placement::shard(std::stoi(kind.substr(2)));
          auto l = layout::make(tp, {p}, shape);
          if (!l) return std::move(l).error();
          const numbers held = held_numbers(*l, r);
          rank["input_local"] = answers::holds(held, l->local_shape(r), shape);
          auto input = dtensor<host_tensor>::make(*l, r, tensor_of(held, l->local_shape(r), dtype::int64));
          if (!input) return std::move(input).error();
          return extension.chunk_dtensor(state_value<host_tensor>(*std::move(input)), r);
        };
        const auto made = chunk();
        if (!made) {
          // The chunk needs other ranks' elements, or cannot be cut at all. Then only the layout has PyTorch's form.
          rank["result"] = golden::refusal(made.error());
          layouts.emplace_back();
        } else {
          const layout& l = made->layout();
          layouts.emplace_back(l);
          CHECK(check_cover(distribute(l).value()).ok());
          CHECK(values_of(made->local()) == held_numbers(l, r));
          rank["result"] = {{"shape", to_json(l.shape())},
                            {"stride", to_json(contiguous_strides(l.shape()))},
                            {"mesh", answers::mesh(l.mesh())},
                            {"placements", answers::placements(l.placements())},
                            {"holds", answers::holds(values_of(made->local()), made->local().sizes(), shape)},
                            {"claimed_box", box_json(l, r)}};
          const auto gathered = gathered_layout(l, fsdp_dim).value();
          rank["all_gather"] = answers::holds(held_numbers(gathered, r), gathered.local_shape(r), shape);
          if (answered)
            rank["result"]["claim_ok"] = is_true(theirs["result"]["claimed_box"], theirs["result"]["holds"]);
        }
        if (answered) all_claims &= theirs["result"]["claim_ok"].get<bool>();
        ours["ranks"].push_back(std::move(rank));
      }
      ours["claims_ok"] = all_answered ? json(all_claims) : json();
      for (const auto& l : layouts) CHECK(l.has_value() == layouts[0].has_value());  // all ranks agree
      for (const auto& l : layouts)
        if (l) CHECK(to_string(*l) == to_string(*layouts[0]));
      differences.compare(std::to_string(i), without(c, {"world", "mesh", "names", "shape", "kind"}), ours,
                          shape.rank() == 0 ? "scalars"
                          : !has_tp         ? "without tensor parallelism"
                          : mesh.rank() > 2 ? "replicate, shard, tp"
                                            : "dp, tp");
    }
    differences.finish();
  }
}
