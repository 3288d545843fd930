// SPDX-License-Identifier: Apache-2.0
// Compares every field of `.metadata` with PyTorch's plain dump of it (metadata.json of every golden case).
// tests/data/differences/metadata.json lists the differences. Items are in torch_file/item_test.cpp.
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <differences.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>
import shardmesh.dcp;

using namespace shardmesh;
using nlohmann::json;
namespace data = checkpoint_data;

namespace {

// One place in a file; `index` is the chunk's position in its tensor's list.
json place_json(const catalog& contents, const std::string& key, const json& offset, const json& index,
                const stored_range& place) {
  json made{{"fqn", key},          {"offset", offset},
            {"index", index},      {"file", contents.files.at(static_cast<std::size_t>(place.file))},
            {"pos", place.offset}, {"length", place.length}};
  if (place.transform != 0)
    made["transform_descriptors"] = json{contents.transforms.at(static_cast<std::size_t>(place.transform))};
  return made;
}

json path_json(const path& where) {
  json made = json::array();
  for (const path_key& key : where) made.push_back(key.is_index() ? json(key.index()) : json(std::string(key.name())));
  return made;
}

json answer_of(const dcp::metadata& read, std::size_t bytes) {
  const catalog& contents = read.contents;
  json made{{"version", read.extras.has_version ? json(read.extras.version) : json()},
            {"pickle_protocol", read.extras.graph ? json(read.extras.graph->protocol()) : json()},
            {"pickle_bytes", bytes},
            {"state_dict_metadata", json::object()},
            {"planner_data", json::object()},
            {"storage_data", json::array()}};
  for (const tensor_entry& t : contents.tensors) {
    static const char* const formats[] = {"torch.contiguous_format", "torch.channels_last", "torch.preserve_format"};
    json one{{"kind", "tensor"},
             {"dtype", std::string(name(t.type))},
             {"layout", t.properties.layout},
             {"requires_grad", t.properties.requires_grad},
             {"memory_format", formats[t.properties.memory_format]},
             {"pin_memory", t.properties.pin_memory},
             {"size", golden::to_json(t.shape)},
             {"chunks", json::array()}};
    for (std::int32_t c = t.first_chunk; c < t.first_chunk + t.chunk_count; ++c) {
      const box where = contents.chunk_box(t, c);
      one["chunks"].push_back(answers::box(where));
      made["storage_data"].push_back(place_json(contents, t.key, golden::to_json(where.offsets), c - t.first_chunk,
                                                contents.chunk_places.at(static_cast<std::size_t>(c))));
    }
    made["state_dict_metadata"][t.key] = std::move(one);
    made["planner_data"][t.key] = path_json(t.where);
  }
  for (const object_entry& o : contents.objects) {
    made["state_dict_metadata"][o.key] = {{"kind", "bytes"}};
    made["storage_data"].push_back(place_json(contents, o.key, nullptr, nullptr, o.place));
    made["planner_data"][o.key] = path_json(o.where);
  }
  return made;
}

// Where PyTorch kept no path, our path is the key as a single name. Such paths are checked and removed.
json kept_paths(json paths, const json& kept) {
  for (auto at = paths.begin(); at != paths.end();) {
    if (kept.contains(at.key())) {
      ++at;
      continue;
    }
    CHECK(at.value() == json::array({at.key()}));
    at = paths.erase(at);
  }
  return paths;
}

// Sorted by place, because the order of a dictionary is irrelevant.
json by_place(const json& places) {
  json made = json::object();
  for (json one : places) {
    const std::string at = one["fqn"].get<std::string>() + one["offset"].dump();
    REQUIRE(!made.contains(at));
    one.erase("fqn");
    made[at] = std::move(one);
  }
  return made;
}

}  // namespace

TEST_CASE("every field of every golden .metadata is read", "[metadata]") {
  golden::differences differences("metadata", "cases");
  for (const std::filesystem::path& file : data::metadata_files()) {
    const std::filesystem::path folder = file.parent_path().parent_path();
    const std::string name = file.filename().string();
    const std::string rank = name == ".metadata" ? "" : std::to_string(std::stoi(name.substr(2))) + ".";
    const std::filesystem::path dump = folder / ("metadata." + rank + "json");
    if (folder.filename().string().starts_with("era_torch_")) continue;  // these have only expected.json, and no dump
    INFO(dump.string());
    REQUIRE(std::filesystem::is_regular_file(dump));
    const auto bytes = data::read(file);
    const auto read = dcp::parse_metadata(bytes, file.string());
    REQUIRE(read);
    CHECK(read->problems.empty());
    json theirs = data::read_json(dump), ours = answer_of(*read, bytes.size());
    theirs["storage_data"] = by_place(theirs.at("storage_data"));
    ours["storage_data"] = by_place(ours["storage_data"]);
    ours["planner_data"] = kept_paths(ours["planner_data"], theirs.at("planner_data"));
    if (!read->extras.has_planner_data && ours["planner_data"].empty()) ours["planner_data"] = nullptr;
    differences.compare(folder.filename().string() + "/" + rank, theirs, ours, "storage_meta");
  }
  differences.finish();
}
