// SPDX-License-Identifier: Apache-2.0
// `save`, `convert`, and `reshard`.
#pragma once
#include <shardmesh/c_api/rewriting.h>
#include <shardmesh/c_api/checkpoint.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace shardmesh {
namespace c_api {

struct save_options {
  shardmesh_format format = SHARDMESH_FORMAT_DCP;
  bool overwrite = false;
  bool durable = true;            // waits for the disk
  int threads = 0;                // 0: all cores
  std::int64_t memory_bytes = 0;  // 0: the library's default
  watching call{};
  std::string previous{};  // DCP: an earlier checkpoint beside the destination; empty: everything is written
  // Only `save` has these: see `shardmesh_save_options`.
  std::string map{};  // "hf.llama:megatron.gpt", or the path of a TOML file
  bool map_inverse = false;
  std::string config{};                                       // with `map`: a JSON file with the model's sizes
  std::vector<std::pair<std::string, std::int64_t>> sizes{};  // with `map`: names and values
};

/// The counts and notes of a save.
struct save_report {
  shardmesh_save_counts counts{};
  std::vector<std::string> notes;
};

/// A part of a tensor: the box at `offsets` with the sizes of `from`; without offsets, the whole tensor.
struct save_part {
  const_tensor from;
  std::vector<std::int64_t> offsets{};
  std::int32_t writer = 0;
};

/// A tensor; its parts must tile it.
struct save_tensor {
  std::string key;
  std::vector<std::int64_t> shape;
  std::vector<save_part> parts;

  save_tensor(std::string name, std::vector<std::int64_t> whole_shape, std::vector<save_part> tiles)
      : key(std::move(name)), shape(std::move(whole_shape)), parts(std::move(tiles)) {}
  /// A tensor in one part.
  save_tensor(std::string name, const_tensor whole) : key(std::move(name)), shape(whole.sizes) {
    parts.push_back({std::move(whole), {}, 0});
  }
};

/// The keys that take part, and their new names and element types.
struct selection {
  std::vector<std::string> only{}, skip{}, rename{}, cast{};
  std::string strip_prefix{};
  bool no_optimizer = false, allow_unused = false, optimizer_follows = false;
  bool allow_narrowing = false;  // allows casts that lose integer values
};

struct convert_options {
  save_options saving{SHARDMESH_FORMAT_SAFETENSORS, false, true, 0, 0, {}, {}, {}, false, {}, {}};
  selection select{};
  std::int64_t max_shard_bytes = 0;  // 0: Hugging Face's 5 GB
  shardmesh_dedup dedup = SHARDMESH_DEDUP_NONE;
  bool skip_objects = false, skip_unsupported = false, nest = false;
  bool components = false;
  std::string item{};                                   // TORCH_CHECKPOINTING: the item for all entries
  shardmesh_payload payload = SHARDMESH_PAYLOAD_TORCH;  // TORCH_CHECKPOINTING
  // Tensors must have their shapes in this checkpoint. With `allow_shape_mismatch`, they are cut or filled to them.
  const checkpoint* like = nullptr;
  bool allow_shape_mismatch = false;
};

struct reshard_options {
  std::string mesh;
  std::vector<std::string> place{};
  std::string default_placements{};
  const checkpoint* like = nullptr;  // instead of a mesh
  bool optimizer_follows = true, skip_unsupported = false;
  selection select{};
  save_options saving{};
};

namespace detail {

// Owns the C structs of the options while it lives.
class c_saving {
 public:
  explicit c_saving(const save_options& from) : call(from.call) {
    options.struct_size = sizeof options;
    options.call = call.c();
    options.memory_bytes = from.memory_bytes;
    options.format = from.format;
    options.overwrite = from.overwrite ? 1 : 0;
    options.skip_sync = from.durable ? 0 : 1;
    options.threads = from.threads;
    options.previous = from.previous.empty() ? nullptr : c_text(from.previous);
    options.map = from.map.empty() ? nullptr : c_text(from.map);
    options.map_inverse = from.map_inverse ? 1 : 0;
    options.config = from.config.empty() ? nullptr : c_text(from.config);
    for (const auto& one : from.sizes) sizes.push_back({c_text(one.first), one.second});
    options.sizes = sizes.data();
    options.size_count = sizes.size();
  }
  c_saving(const c_saving&) = delete;
  c_saving& operator=(const c_saving&) = delete;
  watched_call call;
  shardmesh_save_options options{};
  std::vector<shardmesh_model_size> sizes{};

  // Runs `write(report, error)`, which returns a status.
  template <class Write>
  save_report run(Write&& write) {
    made_handle<shardmesh_save_report, &shardmesh_save_report_free> report;
    call.run([&](shardmesh_error** e) { return write(report.out(), e); });
    save_report made;
    made.counts.struct_size = sizeof made.counts;
    checked([&](shardmesh_error** e) { return shardmesh_save_report_describe(report.get(), &made.counts, e); });
    for (std::size_t i = 0; i < made.counts.note_count; ++i) {
      shardmesh_text note{};
      checked([&](shardmesh_error** e) { return shardmesh_save_report_note(report.get(), i, &note, e); });
      made.notes.push_back(to_string(note));
    }
    return made;
  }
};

class c_selection {
 public:
  explicit c_selection(const selection& from)
      : only_(pointers(from.only)),
        skip_(pointers(from.skip)),
        rename_(pointers(from.rename)),
        cast_(pointers(from.cast)) {
    made.struct_size = sizeof made;
    made.only = only_.data();
    made.only_count = only_.size();
    made.skip = skip_.data();
    made.skip_count = skip_.size();
    made.rename = rename_.data();
    made.rename_count = rename_.size();
    made.cast = cast_.data();
    made.cast_count = cast_.size();
    made.strip_prefix = from.strip_prefix.empty() ? nullptr : c_text(from.strip_prefix);
    made.no_optimizer = from.no_optimizer ? 1 : 0;
    made.allow_unused = from.allow_unused ? 1 : 0;
    made.optimizer_follows = from.optimizer_follows ? 1 : 0;
    made.allow_narrowing = from.allow_narrowing ? 1 : 0;
  }
  c_selection(const c_selection&) = delete;
  c_selection& operator=(const c_selection&) = delete;
  shardmesh_selection made{};

 private:
  std::vector<const char*> only_, skip_, rename_, cast_;
};

}  // namespace detail

/// Writes a new checkpoint, whole or not at all.
inline save_report save(const std::string& path, const std::vector<save_tensor>& tensors,
                        const save_options& options = {}) {
  std::deque<std::vector<shardmesh_save_part>> parts;
  std::vector<shardmesh_save_tensor> wanted;
  for (const save_tensor& one : tensors) {
    auto& tiles = parts.emplace_back();
    for (const save_part& part : one.parts) {
      if (!part.offsets.empty() && part.offsets.size() != part.from.sizes.size())
        throw std::invalid_argument("a box must have as many offsets as sizes, or none");
      tiles.push_back({part.offsets.empty() ? nullptr : part.offsets.data(), part.from.c(), part.writer, 0});
    }
    wanted.push_back({one.key.data(), one.key.size(), one.shape.data(), static_cast<std::int64_t>(one.shape.size()),
                      tiles.data(), tiles.size()});
  }
  detail::c_saving how(options);
  return how.run([&](shardmesh_save_report** report, shardmesh_error** e) {
    return shardmesh_save(c_text(path), wanted.data(), wanted.size(), &how.options, report, e);
  });
}

/// Writes a checkpoint in another format.
inline save_report convert(const checkpoint& from, const std::string& path, const convert_options& options = {}) {
  detail::c_saving how(options.saving);
  const detail::c_selection select(options.select);
  shardmesh_convert_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.saving = &how.options;
  wanted.selection = &select.made;
  wanted.max_shard_bytes = options.max_shard_bytes;
  wanted.dedup = options.dedup;
  wanted.skip_objects = options.skip_objects ? 1 : 0;
  wanted.skip_unsupported = options.skip_unsupported ? 1 : 0;
  wanted.nest = options.nest ? 1 : 0;
  wanted.components = options.components ? 1 : 0;
  wanted.item = options.item.empty() ? nullptr : c_text(options.item);
  wanted.payload = options.payload;
  wanted.like = options.like == nullptr ? nullptr : options.like->c();
  wanted.allow_shape_mismatch = options.allow_shape_mismatch ? 1 : 0;
  return how.run([&](shardmesh_save_report** report, shardmesh_error** e) {
    return shardmesh_convert(from.c(), c_text(path), &wanted, report, e);
  });
}

/// Writes a checkpoint as DCP for another mesh.
inline save_report reshard(const checkpoint& from, const std::string& path, const reshard_options& options) {
  detail::c_saving how(options.saving);
  const detail::c_selection select(options.select);
  const std::vector<const char*> place = pointers(options.place);
  shardmesh_reshard_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.saving = &how.options;
  wanted.selection = &select.made;
  wanted.mesh = options.mesh.empty() ? nullptr : c_text(options.mesh);
  wanted.place = place.data();
  wanted.place_count = place.size();
  wanted.default_placements = options.default_placements.empty() ? nullptr : c_text(options.default_placements);
  wanted.like = options.like == nullptr ? nullptr : options.like->c();
  wanted.no_optimizer_follow = options.optimizer_follows ? 0 : 1;
  wanted.skip_unsupported = options.skip_unsupported ? 1 : 0;
  return how.run([&](shardmesh_save_report** report, shardmesh_error** e) {
    return shardmesh_reshard(from.c(), c_text(path), &wanted, report, e);
  });
}

}  // namespace c_api
}  // namespace shardmesh
