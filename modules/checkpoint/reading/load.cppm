// SPDX-License-Identifier: Apache-2.0
// load: boxes of a checkpoint's tensors into memory, at the cost of the bytes that are needed.
export module shardmesh.checkpoint:load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.catalog;
import :resize;

export namespace shardmesh {

/// A wanted part of a tensor: `where` in the global tensor (elements), `to` of equal sizes in memory. `to` may have any
/// strides and any dtype that `copy` converts the stored one to.
struct load_request {
  std::string key;
  box where;
  tensor_view to;
  /// The memory that the caller fills from `to` after the load, where `to` is a buffer on the way. Requests are
  /// compared by it.
  std::optional<tensor_view> copied_to = {};
};

/// How `load`, `load_tensor` and `load_into` read a checkpoint. By default a cast that loses values is an error
/// (errc::narrowing).
struct load_options {
  int threads = 0;               // 0: all cores
  bool allow_narrowing = false;  // casts that lose values, as `check_cast` says
  call_options call{};           // deadline and cancellation
  read_options reading{};        // staging, and which runs are read together
  /// Boxes may reach beyond the stored tensor, whose indices stay: zeros are loaded there. `load_into` takes any sizes
  /// of as many dimensions. As Megatron's ShardedTensor.allow_shape_mismatch, for padded vocabularies.
  bool allow_shape_mismatch = false;
  /// Holds every stored chunk of which something is wanted against its own checksum, whole, before the tensor counts as
  /// loaded (errc::checksum_mismatch): those bytes are read twice. What has no checksum is not compared.
  bool check = false;
  std::function<void(std::int64_t bytes)> progress{};  // called from any thread with the bytes that were just loaded
  /// Called once for each key when everything that was requested of it is in memory (and compared), in the order in
  /// which tensors are stored, one at a time. With it tensors are loaded in groups of neighbours, some 64 MiB at a
  /// time.
  std::function<void(const std::string& key)> arrived{};
};

/// A tensor that was loaded as another dtype than the stored one.
struct loaded_cast {
  std::string key;
  dtype stored = dtype::undefined, loaded = dtype::undefined;
  friend bool operator==(const loaded_cast&, const loaded_cast&) = default;
};

/// What a load did beside copying, whether of one process or of ranks together. The calls of one process return their
/// first problem as an error: what they report has no problems, and neither missing nor unexpected keys.
struct load_report : problem_report {
  std::vector<std::string> loaded;               // keys, each once, in the order of the requests
  std::vector<std::string> missing, unexpected;  // wanted and not there; there and not wanted
  std::vector<resized_tensor> resized;           // loaded in another shape than the stored one; of `load`: a larger one
  std::vector<loaded_cast> casts;   // of those loaded, each key and dtype once, in the order of the requests
  std::int64_t bytes_read = 0;      // in the dtypes of the destinations
  std::int64_t bytes_received = 0;  // from other ranks
};

/// Fills every request from the checkpoint. A stored range that several requests share is read once; what is contiguous
/// on both sides is read straight into place. Never reads gaps: a box that is not held exactly once is an error.
/// Two requests must not fill one byte, with two exceptions: parts of one key that overlap in memory as they do in the
/// tensor; and the same memory under several keys (tied weights), whose values are compared before either key counts as
/// loaded.
/// \errors before a byte is read: errc::missing_key, with the nearest key that there is; errc::dtype_mismatch for the
///         key of an object; errc::shape_mismatch when a box does not fit the stored shape, or memory its box;
///         errc::narrowing for a cast that loses values and was not allowed, errc::unsupported for one that there is
///         not, for memory that no backend reaches and for opaque tensors; errc::overlap for requests that fill one byte;
///         errc::gap. Later errc::cancelled, errc::deadline_exceeded, errc::checksum_mismatch (with `check`),
///         errc::disagreement of tied weights, and the reader's. Each names the key and the box. Memory that was not
///         reached is unspecified.
/// Cost: rows: the bytes needed; columns: at most 1.25 of them when runs are 4 KiB or longer, else whole stored rows.
///       A buffer for each tensor that shares its memory with another key's.
/// Source: torch.distributed.checkpoint.load, which casts without a word
result<load_report> load(checkpoint_reader& reader, std::span<const load_request> requests,
                         const load_options& options = {});

/// The whole tensor, or one box of it, in new memory of the stored dtype.
result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options = {});
result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options = {});

/// A whole tensor into memory of the stored shape, or the box `where` of it into memory of the box's sizes.
/// \errors those of `load`; errc::shape_mismatch without `allow_shape_mismatch` names the shape that the memory has and the one that it needs
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const tensor_view& to,
                              const load_options& options = {});
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const box& where, const tensor_view& to,
                              const load_options& options = {});

/// The same into a tensor of any framework.
template <local_tensor T>
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, T& to,
                              const load_options& options = {}) {
  if (auto plain = check_tensor(to); !plain) return std::move(plain).error().with_key(key);
  auto loaded = load_into(reader, key, adapter<T>::view(to), options);
  if (loaded) note_written(to);
  return loaded;
}
template <local_tensor T>
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const box& where, T& to,
                              const load_options& options = {}) {
  if (auto plain = check_tensor(to); !plain) return std::move(plain).error().with_key(key);
  auto loaded = load_into(reader, key, where, adapter<T>::view(to), options);
  if (loaded) note_written(to);
  return loaded;
}

}  // namespace shardmesh
