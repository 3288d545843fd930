// SPDX-License-Identifier: Apache-2.0
// Tensors that are computed while they are read: from quantized blocks, or from other tensors by a mapping. A reader
// opens such a chunk as a `computed_source`, which gets its input through `stored_boxes`.
export module shardmesh.checkpoint_core:computed_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :entries;
import :reader;

export namespace shardmesh {

/// The row-major elements of a box, computed while they are read. Reads are split into boxes, and a derived class makes
/// the elements of each. `read_part` requests boxes, so a source whose input has another order can choose boxes with
/// long runs there. Thread-safe if `make` is.
class computed_source : public byte_source {
 public:
  /// \pre the dtype has whole bytes, and the elements' size in bytes fits in 64 bits
  computed_source(dtype type, extents sizes, std::string file)
      : type_(type), sizes_(std::move(sizes)), file_(std::move(file)) {}
  std::int64_t size_bytes() const override;
  std::string name() const override { return file_; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;

  dtype type() const { return type_; }
  const extents& sizes() const { return sizes_; }
  /// Fills `to` with the elements of `part`, a box of this source. `to` has the sizes of `part`, any strides, and any
  /// dtype that `copy` converts to.
  /// \errors those of `make` and `copy`
  /// Memory: one piece (`piece_sizes`), unless `to` is row-major and has this source's dtype.
  result<void> read_part(const box& part, const tensor_view& to) const;
  /// Returns whether larger boxes have longer runs in the input, and `make` needs no more memory for them. Callers then
  /// read as much at a time as their own memory allows.
  virtual bool prefers_large_reads() const { return false; }

 protected:
  /// Fills `to` (row-major, of this source's dtype, aligned for it) with the elements of `part`. The box has at most
  /// the sizes that `piece_sizes` gives; if `prefers_large_reads()`, it may have any sizes. It is not empty.
  virtual result<void> make(const box& part, const tensor_view& to) const = 0;
  /// Returns the sizes of the boxes into which a read of a box with these sizes is divided, each at least 1. The
  /// default is a run of rows, or a part of one row, of at most `piece_bytes` bytes.
  /// \pre no size is 0
  virtual extents piece_sizes(const extents& sizes) const;

  /// Bytes computed at a time. They stay in a core's cache between the steps of a computation.
  static constexpr std::int64_t piece_bytes = std::int64_t{1} << 19;

 private:
  result<void> make_run(std::int64_t first, std::int64_t count, std::byte* to) const;
  bool is_made_directly(const tensor_view& to) const;

  dtype type_;
  extents sizes_;
  std::string file_;
};

/// A stored tensor that can be read box by box, whatever its chunks are. The referenced objects must outlive it.
struct stored_boxes {
  checkpoint_reader* reader = nullptr;
  chunk_source* source = nullptr;
  const tensor_entry* tensor = nullptr;

  /// Fills `to` with the box `part` of the whole tensor, converted to the dtype of `to`.
  /// \errors those of `chunk_source::read` and `run_to_memory`
  result<void> read(const box& part, const tensor_view& to) const;
};

}  // namespace shardmesh
