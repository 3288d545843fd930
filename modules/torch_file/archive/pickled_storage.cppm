// SPDX-License-Identifier: Apache-2.0
// Not exported: tensors and arrays whose bytes lie inside a pickle that pickle.dump wrote, as they are. Not here: which
// pickles may have them (item).
module shardmesh.torch_file:pickled_storage;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// torch.storage._load_from_bytes(BYTES): BYTES are a stream of torch.save as it was before 1.6, with one storage.
struct pickled_storage {
  pickle::graph graph;  // of the reference to the storage
  std::int64_t count = 0;
  std::int64_t begin = 0, length = 0;  // of the elements, in the file
  std::endian order = std::endian::little;
  pickle::value reference() const { return graph.root(); }
};

// `file` is the whole pickle that the record lies in, with the address that it was parsed at.
// \errors errc::unsupported for protocols 0 to 2, which spell bytes as text; errc::bad_format
// Source: torch.storage.TypedStorage.__reduce__, torch.serialization._legacy_save
result<pickled_storage> find_pickled_storage(const pickle::value& record, std::span<const std::byte> file);

// An array of plain numbers, in the byte order that all processors have today.
struct pickled_array {
  dtype type = dtype::undefined;
  extents sizes, strides;
  std::int64_t begin = 0, length = 0;  // of the elements, in the file
};

// Nothing for what is no array, or none that a tensor can be: scalars, dates, texts, records, the other byte order,
// dtypes that PyTorch does not have, too many dimensions; and where the bytes are spelled as text.
std::optional<pickled_array> find_pickled_array(const pickle::value& record, std::span<const std::byte> file);

}  // namespace shardmesh::torch_file
