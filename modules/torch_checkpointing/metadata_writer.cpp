// SPDX-License-Identifier: Apache-2.0
// Writes metadata: the same dicts as the package pickles, with their keys in the same order.
module;
#include <shardmesh/assert.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import shardmesh.pickle;

namespace shardmesh::torch_checkpointing {
namespace {

// Writes a key as the package's json.dumps does. Keys that JSON cannot express, tuples and enum members, become text.
std::string json_of(const path_key& step) {
  if (step.is_index()) return std::to_string(step.index());
  if (step.is_integer()) return std::string(step.name());
  const std::string_view pickled = step.is_python() ? step.pickled() : "";
  const std::string_view opcode = pickled.substr(std::min<std::size_t>(2, pickled.size()), 1);  // after PROTO
  const bool is_single = pickled.size() == 4;  // else a tuple, whose pickle begins with its first element
  if (is_single && opcode == "N") return "null";
  if (is_single && (opcode == "\x88" || opcode == "\x89")) return opcode == "\x88" ? "true" : "false";
  const bool is_finite = step.name().find_first_not_of("0123456789+-.e") == std::string_view::npos;
  const bool fits = opcode == "\x8a" && is_finite && step.name().size() <= 18;  // JSON readers know 64 bits
  if (fits || (opcode == "G" && is_finite)) return std::string(step.name());
  return json_quoted(step.name());
}

// `is_flat` is set for files with dotted names, whose keys are all text.
std::string json_of(const path& where, bool is_flat) {
  std::string text = "[";
  for (const path_key& step : where) {
    if (text.size() > 1) text += ',';
    text += is_flat && !step.is_index() ? json_quoted(step.name()) : json_of(step);
  }
  return text + "]";
}

std::string_view name_of(payload how) {
  switch (how) {
    case payload::torch:
      return "TorchSerialization";
    case payload::safetensors:
      return "SafetensorsSerialization";
    case payload::json:
      return "JsonSerialization";
    case payload::raw:
      return "RawSerialization";
  }
  return "";
}

class metadata_writer {
 public:
  std::vector<std::byte> write(const metadata& described) && {
    out_.begin_dict();
    out_.text("metadata");
    out_.begin_dict();
    for (const item_metadata& item : described.items) {
      out_.text(item.key);
      write_item(item);
    }
    out_.end_dict();
    out_.text("world_size");
    out_.integer(described.world_size);
    out_.text("version");
    out_.text(described.version);
    out_.end_dict();
    return std::move(out_).finish();
  }

 private:
  void write_item(const item_metadata& item) {
    out_.begin_dict();
    out_.text("nested_path_to_metadata");
    out_.begin_dict();
    const bool is_flat = std::any_of(item.files.begin(), item.files.end(),
                                     [](const rank_file& file) { return file.how == payload::safetensors; });
    for (const tensor_metadata& tensor : item.tensors) {
      out_.text(json_of(tensor.where, is_flat));
      out_.begin_list();
      for (const sharding& group : tensor.groups) write_group(group);
      out_.end_list();
    }
    out_.end_dict();
    out_.text("rank_to_layout_info");
    out_.begin_dict();
    for (std::size_t rank = 0; rank < item.files.size(); ++rank) {
      out_.integer(static_cast<std::int64_t>(rank));
      write_layout(item, rank);
    }
    out_.end_dict();
    out_.end_dict();
  }

  void write_layout(const item_metadata& item, std::size_t rank) {
    const rank_file& file = item.files[rank];
    if (file.how == payload::torch && file.name == default_file_name(item.key, static_cast<std::int32_t>(rank)))
      return out_.none();
    out_.begin_dict();
    out_.text("file_path");
    out_.text(file.name);
    out_.text("serialization_format");
    out_.begin_dict();
    out_.text("type");
    out_.text(name_of(file.how));
    if (file.how == payload::json) {
      out_.text("cls");
      out_.none();
    }
    out_.end_dict();
    out_.end_dict();
  }

  void write_group(const sharding& group) {
    out_.begin_dict();
    out_.text("sharding_metadata");
    out_.begin_dict();
    out_.text("type");
    out_.text(group.laid_out ? "DTensorShardingMetadata" : "default_tensor_v1");
    out_.text("data");
    group.laid_out ? write_mesh_sharding(group) : write_boxes(group);
    out_.end_dict();
    out_.text("ranks");
    write_ranks(group.ranks);
    out_.end_dict();
  }

  void write_mesh_sharding(const sharding& group) {
    out_.begin_dict();
    out_.text("global_shape");
    write_list(group.shape);
    out_.text("dtype");
    write_dtype(group.type);
    out_.text("stride");
    write_list(contiguous_strides(group.shape));
    out_.text("mesh_spec");
    write_mesh(group.laid_out->mesh());
    out_.text("placements");
    out_.begin_list();
    for (const placement& one : group.laid_out->placements()) write_placement(one);
    out_.end_list();
    out_.end_dict();
  }

  void write_placement(const placement& one) {
    SHARDMESH_ASSERT(one.kind != placement_kind::shard_segments);
    out_.begin_dict();
    out_.text("type");
    out_.text(!one.is_shard() ? "Replicate" : one.kind == placement_kind::strided_shard ? "StridedShard" : "Shard");
    if (one.is_shard()) {
      out_.text("dim");
      out_.integer(one.dim);
    }
    if (one.kind == placement_kind::strided_shard) {
      out_.text("split_factor");
      out_.integer(one.split_factor);
    }
    out_.end_dict();
  }

  void write_boxes(const sharding& group) {
    out_.begin_dict();
    out_.text("global_shape");
    write_list(group.shape);
    const auto write_each = [&](std::string_view field, const auto& part_of) {
      out_.text(field);
      out_.begin_list();
      for (const placed_box& one : group.boxes) write_list(part_of(one));
      out_.end_list();
    };
    write_each("global_offsets", [](const placed_box& one) { return one.where.offsets; });
    write_each("local_offsets", [](const placed_box& one) { return one.local_offsets; });
    write_each("local_sizes", [](const placed_box& one) { return one.where.sizes; });
    out_.text("dtype");
    write_dtype(group.type);
    out_.end_dict();
  }

  // Tensors share few meshes and rank groups: each is written once and then recalled.
  void write_mesh(const device_mesh& mesh) {
    std::vector<std::int32_t> ranks;
    for (std::int64_t i = 0; i < mesh.size(); ++i) ranks.push_back(mesh.rank_of_position(i));
    const std::vector<std::string> names(mesh.names().begin(), mesh.names().end());
    const auto [known, is_new] = meshes_.try_emplace({mesh.sizes(), ranks, names}, 0);
    if (!is_new) return out_.recall(known->second);
    out_.begin_dict();
    out_.text("device_type");
    out_.text("cpu");
    out_.text("mesh_shape");
    write_tuple(mesh.sizes());
    out_.text("mesh_data");
    write_tuple(ranks);
    out_.text("mesh_dim_names");
    if (names.empty()) {
      out_.none();
    } else {
      out_.begin_tuple();
      for (const std::string& one : names) out_.text(one);
      out_.end_tuple();
    }
    out_.end_dict();
    known->second = out_.memoize();
  }

  void write_ranks(const std::vector<std::int32_t>& ranks) {
    const auto [known, is_new] = ranks_.try_emplace(ranks, 0);
    if (!is_new) return out_.recall(known->second);
    write_tuple(ranks);
    known->second = out_.memoize();
  }

  template <class Numbers>
  void write_tuple(const Numbers& numbers) {
    out_.begin_tuple();
    for (const std::int64_t number : numbers) out_.integer(number);
    out_.end_tuple();
  }
  void write_list(const extents& numbers) {
    out_.begin_list();
    for (const std::int64_t number : numbers) out_.integer(number);
    out_.end_list();
  }
  void write_dtype(dtype type) { out_.text("torch." + std::string(name(type))); }

  using mesh_key = std::tuple<extents, std::vector<std::int32_t>, std::vector<std::string>>;
  pickle::writer out_;
  std::map<mesh_key, std::uint32_t> meshes_;
  std::map<std::vector<std::int32_t>, std::uint32_t> ranks_;
};

}  // namespace

std::vector<std::byte> format_metadata(const metadata& described) {
  return metadata_writer().write(described);
}

}  // namespace shardmesh::torch_checkpointing
