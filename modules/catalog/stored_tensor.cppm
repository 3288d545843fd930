// SPDX-License-Identifier: Apache-2.0
// stored_tensor: where a tensor's bytes lie in a source, and reading any box of it. Every format ends here, so there is
// one place that knows strides, byte order and lazily conjugated bits of stored data.
// Not here: how a format finds these numbers (torch_file::item, safetensors).
export module shardmesh.catalog:stored_tensor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :file_maps;

export namespace shardmesh {

/// A tensor inside a byte source. All numbers were checked against the source when it was made: every element lies in
/// [begin, begin + size_bytes).
struct stored_tensor {
  std::int64_t begin = 0;       // byte offset of the storage in its source
  std::int64_t size_bytes = 0;  // of the storage, decoded
  dtype type = dtype::undefined;
  extents sizes;
  extents strides;                  // elements; 0 for expanded dimensions
  std::int64_t storage_offset = 0;  // elements from `begin` to the element with index 0
  bool swap_bytes = false;          // stored in the other byte order
  bool conjugate = false;           // PyTorch's lazy bits: stored values are the conjugate, the negative
  bool negative = false;
};

/// A tensor stored row-major without gaps.
stored_tensor contiguous_stored_tensor(dtype type, const extents& sizes, std::int64_t begin, std::int64_t size_bytes);

struct read_options {
  /// Memory for staging, per call. Runs shorter than `min_run_bytes` are not read one by one: the range that covers
  /// them is.
  std::int64_t staging_bytes = 1 << 20;
  std::int64_t min_run_bytes = 4096;
  /// Boxes of which whole rows would be read for a little of each are copied out of a mapping of their file, which the
  /// reader keeps: for one process that loads the columns of rank after rank from one reader. No memory is added (what
  /// is mapped is the system's cache). A file that became shorter is errc::io when it is seen, before each copy; one
  /// that becomes shorter during a copy ends the process (SIGBUS), as with `map_tensor`: so this is off by default.
  /// Passed over where bytes do not lie in a file as they are.
  bool map_rows = false;
};

/// Bytes that `read_box` would read for this box: the cost of asking for it.
std::int64_t read_cost_bytes(const stored_tensor& tensor, const box& part, const read_options& options = {});

/// Fills `to` (sizes equal to part's; any strides; any dtype that `copy` converts to) with the elements of `part`, a
/// box in the tensor's own indices. Rows that are contiguous in the source and in `to`, with nothing to convert, are
/// read straight into `to`.
/// \param maps  where files are mapped, with `map_rows`; null: none is
/// \errors those of the source; errc::out_of_bounds when `part` leaves the tensor; errc::unaligned for a part of a
///         sub-byte tensor; those of `copy`.
/// Cost: at most 1.25 times the part's bytes when its runs in the source are `min_run_bytes` or longer.
result<void> read_box(const byte_source& source, const stored_tensor& tensor, const box& part, const tensor_view& to,
                      const read_options& options = {}, file_maps* maps = nullptr);

}  // namespace shardmesh
