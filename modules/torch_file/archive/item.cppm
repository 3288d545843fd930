// SPDX-License-Identifier: Apache-2.0
// The output of one torch.save: the pickled root value, its storages (with the place of their bytes), and its tensors
// (views of storages). An item is a part of a .distcp file, or a whole .pt file. Folders of items are in dcp.
export module shardmesh.torch_file:item;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;

namespace shardmesh::torch_file {
class item_reader;
}

export namespace shardmesh::torch_file {

/// Layout of an item's bytes: torch.save's ZIP (since 1.6), its older stream of pickles, or a bare pickle.
enum class item_format : std::uint8_t { zip, legacy_stream, pickle };

/// A storage: a run of bytes that tensors view.
struct storage {
  std::string key;                // "0" for record data/0
  dtype type = dtype::undefined;  // of a typed storage; undefined for UntypedStorage
  std::int64_t size_bytes = 0;    // uncompressed
  std::int64_t offset = 0;        // of the stored bytes, from the item's first byte
  std::int64_t stored_bytes = 0;  // compressed; equals size_bytes when method is 0
  std::uint16_t method = 0;       // 0 stored: pread the bytes; 8 deflated: use `read_storage`
  std::uint32_t crc32 = 0;        // of the uncompressed bytes; 0 when unknown
};

/// A strided view of a storage. Every element has been checked to lie within the storage.
struct tensor {
  dtype type = dtype::undefined;
  extents sizes, strides;           // strides in elements, not negative
  std::size_t storage = 0;          // index into `storages()`
  std::int64_t storage_offset = 0;  // in elements
  bool requires_grad = false;
  bool conj = false, neg = false;  // the stored bytes are unresolved: the reader must conjugate or negate them
  std::string python_type;         // "torch.Tensor", "torch.nn.parameter.Parameter", "numpy.ndarray"
};

struct item_options {
  /// Largest data.pkl to read.
  std::int64_t pickle_limit_bytes = std::int64_t{1} << 30;
  /// The budget of the item's checkpoint. Null gives the item a budget of its own.
  read_budget* budget = nullptr;
  /// The item is a whole file. TorchScript archives are then accepted (`is_script`), and numpy arrays of plain numbers
  /// in a bare pickle become tensors.
  bool is_file = false;
};

/// An opened item. It owns its pickle and keeps no reference to the source.
class item {
 public:
  /// \param source  exactly the item's bytes (see `section_source`)
  /// \errors errc::bad_format (archive, storages), errc::bad_pickle, errc::rank_too_large, errc::overflow,
  ///   errc::out_of_bounds (a tensor that leaves its storage), errc::unsupported; all name the file
  /// Cost: one read for an item of at most 16 KiB. A larger one takes two reads (head, tail) and one small read per
  ///   storage that neither contains. Tensor data is not read.
  static result<item> open(const byte_source& source, const item_options& options = {});

  item_format format() const { return format_; }
  /// Returns true for a file of torch.jit.save. Its root is a module whose class is stored as source text in the
  /// archive.
  bool is_script() const { return is_script_; }
  /// Returns the byte order of the storages' elements.
  std::endian byte_order() const { return byte_order_; }
  /// Returns the reasons why torch.load refuses this file although it is read here. Empty unless `is_file` was set.
  std::span<const error> warnings() const { return warnings_; }
  pickle::value root() const { return graph_.root(); }
  const pickle::graph& graph() const { return graph_; }
  std::span<const storage> storages() const { return storages_; }
  std::span<const tensor> tensors() const { return tensors_; }
  /// Returns the names, escaped, of the records that nothing reads: torch.save writes no such record, or the pickle
  /// refers to no such storage. Empty for items that are not whole files, for TorchScript, and for streams.
  std::span<const std::string> unread_records() const { return unread_records_; }
  /// Returns the index of the tensor that this record rebuilds; empty when the record is not a tensor that we expose.
  std::optional<std::size_t> tensor_of(const pickle::value& value) const;
  /// Returns the index of the tensor that holds the integers of a `torch.quantize_per_tensor` or `_per_channel` tensor.
  /// `value` is the quantized tensor's record, or the record of a Parameter around it.
  std::optional<std::size_t> quantized_integers(const pickle::value& value) const;
  /// Returns true for a record of a tensor kind that we do not expose (quantized, sparse, nested, subclasses).
  bool is_opaque_tensor(const pickle::value& value) const;

 private:
  friend item_reader;
  explicit item(pickle::graph graph) : graph_(std::move(graph)) {}
  pickle::graph graph_;
  item_format format_ = item_format::zip;
  bool is_script_ = false;
  std::endian byte_order_ = std::endian::little;
  std::vector<error> warnings_;
  std::vector<storage> storages_;
  std::vector<tensor> tensors_;
  std::unordered_map<std::uint64_t, std::size_t> tensor_of_;  // by identity
  std::vector<std::string> unread_records_;
};

/// Reads the uncompressed bytes of a storage.
/// \errors errc::io; errc::bad_format, also for more than `limit_bytes`; errc::checksum_mismatch when `check_crc` is set
///   and the archive has a CRC-32
result<std::vector<std::byte>> read_storage(const byte_source& source, const torch_file::storage& storage,
                                            std::int64_t limit_bytes, bool check_crc = true);

/// Reads a tensor's elements: row-major, contiguous, little-endian, with conjugation and negation applied.
/// \errors those of `read_storage`, also for a tensor of more than `limit_bytes`; errc::unsupported for a dtype that
///   cannot be negated
/// Cost: reads the whole storage.
result<std::vector<std::byte>> read_tensor(const byte_source& source, const torch_file::item& item, std::size_t tensor,
                                           std::int64_t limit_bytes, bool check_crc = true);

/// Returns PyTorch's class name of a typed storage ("FloatStorage" for float32); empty for dtypes that PyTorch saves as
/// untyped storages.
std::optional<std::string_view> storage_class(dtype type);

}  // namespace shardmesh::torch_file
