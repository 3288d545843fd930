// SPDX-License-Identifier: Apache-2.0
// Tensors and arrays whose bytes lie unchanged inside a pickle of pickle.dump. `item` decides which pickles may contain
// them. Not exported.
module shardmesh.torch_file:pickled_storage;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// The argument of torch.storage._load_from_bytes(BYTES): a stream as torch.save wrote it before 1.6, with one storage.
struct pickled_storage {
  pickle::graph graph;  // the reference to the storage
  std::int64_t count = 0;
  std::int64_t begin = 0, length = 0;  // of the elements, in the file
  std::endian order = std::endian::little;
  pickle::value reference() const { return graph.root(); }
};

// Finds the storage in a `_load_from_bytes` record. `file` is the whole pickle that contains the record, at the address
// from which it was parsed.
// \errors errc::unsupported for protocols 0 to 2, which write bytes as text; errc::bad_format
// Source: torch.storage.TypedStorage.__reduce__, torch.serialization._legacy_save
result<pickled_storage> find_pickled_storage(const pickle::value& record, std::span<const std::byte> file);

// An array of plain numbers, little-endian.
struct pickled_array {
  dtype type = dtype::undefined;
  extents sizes, strides;
  std::int64_t begin = 0, length = 0;  // of the elements, in the file
};

// Finds the elements of a numpy array. Empty for values that are not arrays and for arrays that cannot be tensors:
// scalars, dates, texts, records, big-endian elements, dtypes that PyTorch lacks, and too many dimensions. It is also
// empty where the pickle has the bytes as text.
std::optional<pickled_array> find_pickled_array(const pickle::value& record, std::span<const std::byte> file);

}  // namespace shardmesh::torch_file
