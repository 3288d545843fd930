// SPDX-License-Identifier: Apache-2.0
// load: reads boxes of a checkpoint's tensors into memory. The cost depends on the bytes requested, not on the
// checkpoint.
export module shardmesh.checkpoint:load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :resize;

export namespace shardmesh {

/// A request to read the box `where` of the global tensor (elements) into the memory `to` of the same sizes. `to` may
/// have any strides, and any dtype that `copy` converts the stored one to.
struct load_request {
  std::string key;
  box where;
  tensor_view to;
  /// The memory that the caller fills from `to` after the load, if `to` is a staging buffer. Requests are compared by
  /// this memory.
  std::optional<tensor_view> copied_to = {};
};

/// How `load`, `load_tensor`, and `load_into` read a checkpoint. By default, a cast that loses values is an error
/// (errc::narrowing).
struct load_options {
  int threads = 0;               // 0: all cores
  bool allow_narrowing = false;  // allow casts that lose values, as `check_cast` defines them
  /// Boxes may reach beyond the stored tensor: zeros are loaded there, and stored elements keep their indices.
  /// `load_into` accepts any sizes of the same number of dimensions. Like Megatron's
  /// ShardedTensor.allow_shape_mismatch, it is for padded vocabularies.
  bool allow_shape_mismatch = false;
  /// Compares every stored chunk that a request needs, as a whole, with its checksum before the tensor counts as loaded
  /// (errc::checksum_mismatch). Those bytes are read twice. Chunks without a checksum are not compared.
  bool check = false;
  time_limit within{};                                 // a duration or a time point (errc::deadline_exceeded)
  std::stop_token cancel{};                            // errc::cancelled
  std::function<void(std::int64_t bytes)> progress{};  // called from any thread with the number of bytes just loaded
  /// Called once for each key when everything requested of it is in memory (and compared). Calls come one at a time, in
  /// the order in which tensors are stored. With this callback, neighbouring tensors are loaded in groups of some 64
  /// MiB.
  std::function<void(const std::string& key)> on_arrival{};
  read_options reading{};  // staging, and which reads are merged

  /// Returns the limits of the call.
  call_options call() const { return {.within = within, .cancel = cancel}; }
};

/// A tensor that was loaded with another dtype than the stored one.
struct loaded_cast {
  std::string key;
  dtype stored = dtype::undefined, loaded = dtype::undefined;
  friend bool operator==(const loaded_cast&, const loaded_cast&) = default;
};

/// The facts of a load that succeeded, by one process or by ranks together. A load that fails returns an `error` with
/// all its problems instead. Only loads by ranks have missing and unexpected keys, when their options allow these.
struct load_report {
  std::vector<std::string> loaded;               // keys, each once, in the order of the requests
  std::vector<std::string> missing, unexpected;  // wanted but not stored; stored but not wanted
  std::vector<resized_tensor> resized;           // loaded in another shape than stored (`allow_shape_mismatch`)
  std::vector<loaded_cast> casts;   // of loaded tensors, each key and dtype once, in the order of the requests
  std::int64_t bytes_read = 0;      // counted in the dtypes of the destinations
  std::int64_t bytes_received = 0;  // from other ranks
};

/// Fills every request from the checkpoint. A stored range that several requests share is read once. Data that is
/// contiguous on both sides is read directly into place. A box that is not stored exactly once is an error. Two
/// requests must not fill the same byte, with two exceptions. Boxes of one key may overlap in memory where they overlap
/// in the tensor. Several keys may fill the same memory (tied weights); their values are compared before either key
/// counts as loaded.
/// \errors before a byte is read: errc::missing_key, with the nearest key; errc::dtype_mismatch for the key of an
///         object; errc::shape_mismatch when a box does not fit the stored shape, or memory its box; errc::narrowing
///         for a cast that loses values and is not allowed; errc::unsupported for a cast that does not exist, for
///         memory that no backend reaches, and for opaque tensors; errc::overlap for requests that fill the same byte;
///         errc::gap. Later: errc::cancelled, errc::deadline_exceeded, errc::checksum_mismatch (with `check`),
///         errc::disagreement of tied weights, and the reader's. Each names the key and the box. Memory that was not
///         filled is unspecified.
/// Cost: for rows, the bytes needed; for columns, at most 1.25 times as many if runs are 4 KiB or longer, otherwise
/// whole stored rows. Memory: a buffer for each tensor that shares its memory with that of another key.
/// Source: torch.distributed.checkpoint.load, which casts silently
result<load_report> load(checkpoint_reader& reader, std::span<const load_request> requests,
                         const load_options& options = {});

/// Reads a whole tensor, or one box of it, into new memory of the stored dtype.
result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options = {});
result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options = {});

/// Reads a whole tensor into memory of the stored shape, or the box `where` of it into memory of the box's sizes.
/// \errors those of `load`; errc::shape_mismatch without `allow_shape_mismatch` names the memory's shape and the needed
///         shape
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const tensor_view& to,
                              const load_options& options = {});
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const box& where, const tensor_view& to,
                              const load_options& options = {});

/// Does the same with a tensor of any framework.
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
