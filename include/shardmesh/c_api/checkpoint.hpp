// SPDX-License-Identifier: Apache-2.0
// `checkpoint`: an opened checkpoint, its contents, and loading from it.
#pragma once
#include <shardmesh/c_api/loading.h>
#include <shardmesh/c_api/values.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardmesh {
namespace c_api {

struct chunk_entry {
  shardmesh_box where{};
  std::string file;
  std::int64_t offset = 0, length = 0;
};

struct tensor_entry {
  std::string key, opaque_type, foreign_dtype;
  shardmesh_dtype dtype = SHARDMESH_DTYPE_UNDEFINED;
  std::vector<std::int64_t> shape;
  std::size_t chunk_count = 0;
  bool requires_grad = false;

  std::int64_t numel() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
  }
};

/// Loads the box at `offsets` with the sizes of `to`; without offsets, the whole tensor.
struct load_request {
  std::string key;
  tensor to;
  std::vector<std::int64_t> offsets{};
};

/// The C form of `requests`, into which it points.
inline std::vector<shardmesh_load_request> pointers(const std::vector<load_request>& requests) {
  std::vector<shardmesh_load_request> made;
  for (const load_request& one : requests) {
    if (!one.offsets.empty() && one.offsets.size() != one.to.sizes.size())
      throw std::invalid_argument("a box must have as many offsets as sizes, or none");
    made.push_back({one.key.data(), one.key.size(), one.offsets.empty() ? nullptr : one.offsets.data(), one.to.c()});
  }
  return made;
}

struct load_options {
  int threads = 0;  // 0: all cores
  bool allow_narrowing = false;
  watching call{};
  bool check = false, allow_shape_mismatch = false;
};

/// See `shardmesh_open_options`.
struct open_options {
  std::int64_t limit_factor = 0;
  std::vector<std::string> only_keys{};
  bool all_parts = false, dequantize = false;
  std::int64_t block_size = 0;  // 0: 128
  std::optional<std::int32_t> rank{};
  bool keys_at_ranks = false;
  std::string map{};  // "hf.llama:megatron.gpt", or the path of a TOML file
  bool map_inverse = false;
  std::string config{};  // with `map`: a JSON file; empty: the one beside the checkpoint
  std::vector<std::pair<std::string, std::int64_t>> sizes{};  // with `map`: names and values
  std::chrono::milliseconds timeout{0};                       // 0: none
};

/// An opened checkpoint. Every call throws `error` on failure. Threads: as for the C interface.
class checkpoint {
 public:
  static checkpoint open(const std::string& path, std::int64_t limit_factor = 0) {
    open_options options;
    options.limit_factor = limit_factor;
    return open(path, options);
  }
  static checkpoint open(const std::string& path, const open_options& options) {
    const std::vector<const char*> keys = pointers(options.only_keys);
    shardmesh_open_options how{};
    how.struct_size = sizeof how;
    how.limit_factor = options.limit_factor;
    how.only_keys = keys.data();
    how.only_key_count = keys.size();
    how.block_size = options.block_size;
    how.dequantize = options.dequantize ? 1 : 0;
    how.all_parts = options.all_parts ? 1 : 0;
    how.rank = options.rank ? &*options.rank : nullptr;
    how.keys_at_ranks = options.keys_at_ranks ? 1 : 0;
    how.map_inverse = options.map_inverse ? 1 : 0;
    how.map = options.map.empty() ? nullptr : c_text(options.map);
    how.config = options.config.empty() ? nullptr : c_text(options.config);
    std::vector<shardmesh_model_size> sizes;
    for (const auto& one : options.sizes) sizes.push_back({c_text(one.first), one.second});
    how.sizes = sizes.data();
    how.size_count = sizes.size();
    how.timeout_milliseconds = options.timeout.count();
    shardmesh_checkpoint* made = nullptr;
    checked([&](shardmesh_error** e) { return shardmesh_checkpoint_open(c_text(path), &how, &made, e); });
    return checkpoint(made);
  }

  shardmesh_checkpoint_summary summary() const {
    shardmesh_checkpoint_summary made{};
    made.struct_size = sizeof made;
    checked([&](shardmesh_error** e) { return shardmesh_checkpoint_describe(c(), &made, e); });
    return made;
  }
  tensor_entry tensor_at(std::size_t index) const {
    shardmesh_tensor_entry entry{};
    entry.struct_size = sizeof entry;
    checked([&](shardmesh_error** e) { return shardmesh_checkpoint_tensor(c(), index, &entry, e); });
    tensor_entry made;
    made.key = to_string(entry.key);
    made.opaque_type = to_string(entry.opaque_type);
    made.foreign_dtype = to_string(entry.foreign_dtype);
    made.dtype = entry.dtype;
    made.shape.assign(entry.shape, entry.shape + entry.rank);
    made.chunk_count = entry.chunk_count;
    made.requires_grad = entry.requires_grad != 0;
    return made;
  }
  std::vector<tensor_entry> tensors() const {
    std::vector<tensor_entry> made;
    const std::size_t count = summary().tensor_count;
    for (std::size_t i = 0; i < count; ++i) made.push_back(tensor_at(i));
    return made;
  }
  std::size_t find_tensor(const std::string& key) const {
    std::size_t index = 0;
    checked(
        [&](shardmesh_error** e) { return shardmesh_checkpoint_find_tensor(c(), key.data(), key.size(), &index, e); });
    return index;
  }
  std::vector<chunk_entry> chunks(std::size_t tensor_index) const {
    std::vector<chunk_entry> made;
    const std::size_t count = tensor_at(tensor_index).chunk_count;
    for (std::size_t i = 0; i < count; ++i) {
      shardmesh_chunk_entry entry{};
      entry.struct_size = sizeof entry;
      checked([&](shardmesh_error** e) { return shardmesh_checkpoint_chunk(c(), tensor_index, i, &entry, e); });
      made.push_back({entry.where, to_string(entry.file), entry.offset, entry.length});
    }
    return made;
  }
  std::vector<std::string> objects() const { return texts(summary().object_count, &shardmesh_checkpoint_object); }
  std::vector<std::string> files() const { return texts(summary().file_count, &shardmesh_checkpoint_file); }
  std::vector<std::string> notes() const { return texts(summary().note_count, &shardmesh_checkpoint_note); }
  std::vector<error> warnings() const { return errors_of(shardmesh_checkpoint_warnings(c())); }
  std::vector<error> problems() const { return errors_of(shardmesh_checkpoint_problems(c())); }

  /// Fills every request; returns the number of bytes read.
  std::int64_t load(const std::vector<load_request>& requests, const load_options& options = {}) const {
    const std::vector<shardmesh_load_request> wanted = pointers(requests);
    watched_call call(options.call);
    shardmesh_load_options how{};
    how.struct_size = sizeof how;
    how.call = call.c();
    how.threads = options.threads;
    how.allow_narrowing = options.allow_narrowing ? 1 : 0;
    how.check = options.check ? 1 : 0;
    how.allow_shape_mismatch = options.allow_shape_mismatch ? 1 : 0;
    std::int64_t read = 0;
    call.run([&](shardmesh_error** e) { return shardmesh_load(c(), wanted.data(), wanted.size(), &how, &read, e); });
    return read;
  }
  /// Loads a whole tensor, row-major, as T. T's element type must hold every value of the stored one.
  template <class T>
  std::vector<T> load(const std::string& key) const {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements in memory: load uint8_t");
    const tensor_entry entry = tensor_at(find_tensor(key));
    std::vector<T> made(static_cast<std::size_t>(entry.numel()));
    load({{key, view(made.data(), entry.shape), {}}});
    return made;
  }
  /// Loads an object as JSON: {"kind":..,"type":..,"value":..}.
  std::string load_object(const std::string& key) const {
    std::size_t index = 0;
    checked(
        [&](shardmesh_error** e) { return shardmesh_checkpoint_find_object(c(), key.data(), key.size(), &index, e); });
    shardmesh_text json{};
    checked([&](shardmesh_error** e) { return shardmesh_load_object(c(), index, &json, e); });
    const std::unique_ptr<const char, text_deleter> held(json.bytes);
    return to_string(json);
  }

  /// The handle for calls of the C interface.
  shardmesh_checkpoint* c() const { return handle_.get(); }

 private:
  struct text_deleter {
    void operator()(const char* bytes) const { shardmesh_text_free({bytes, 0}); }
  };
  explicit checkpoint(shardmesh_checkpoint* made) : handle_(made) {}
  template <class At>
  std::vector<std::string> texts(std::size_t count, At at) const {
    std::vector<std::string> made;
    for (std::size_t i = 0; i < count; ++i) {
      shardmesh_text text{};
      checked([&](shardmesh_error** e) { return at(c(), i, &text, e); });
      made.push_back(to_string(text));
    }
    return made;
  }
  std::unique_ptr<shardmesh_checkpoint, free_with<&shardmesh_checkpoint_close>> handle_;
};

}  // namespace c_api
}  // namespace shardmesh
