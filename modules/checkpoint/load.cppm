// SPDX-License-Identifier: Apache-2.0
// load: boxes of a checkpoint's tensors into memory, at the cost of the bytes that are needed.
export module shardmesh.checkpoint:load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import :reader;

export namespace shardmesh {

/// A wanted part of a tensor: `where` in the global tensor (elements), `to` of equal sizes in memory. `to` may have any
/// strides and any dtype that `copy` converts the stored one to.
struct load_request {
  std::string key;
  box where;
  tensor_view to;
};

struct load_options {
  int threads = 0;  // 0: all cores
  std::stop_token cancel{};
  read_options reading{};
};

/// Fills every request from the checkpoint. A stored range that several requests share is read once; what is contiguous
/// on both sides is read straight into place. Never reads gaps: a box that is not held exactly once is an error.
/// \errors errc::missing_key; errc::shape_mismatch when a box does not fit the stored shape; errc::gap;
/// errc::unsupported
///         for opaque tensors; the reader's. Each names the key and the box. Memory that was not reached is
///         unspecified.
/// Cost: rows: the bytes needed; columns: at most 1.25 of them when runs are 4 KiB or longer, else whole stored rows.
/// Source: torch.distributed.checkpoint.load
result<void> load(checkpoint_reader& reader, std::span<const load_request> requests, const load_options& options = {});

/// The whole tensor, or one box of it, in new memory of the stored dtype.
result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options = {});
result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options = {});

/// A whole tensor into a tensor of any framework; `to` has the stored shape.
template <local_tensor T>
result<void> load_into(checkpoint_reader& reader, std::string key, T& to, const load_options& options = {}) {
  const tensor_view view = adapter<T>::view(to);
  const load_request request{std::move(key), box::whole(view.sizes), view};
  return load(reader, {&request, 1}, options);
}

}  // namespace shardmesh
