// SPDX-License-Identifier: Apache-2.0
// component_reader: a checkpoint whose tensors of known wrapping representations (sparse, nested, torchao's) are seen
// as their component tensors: for destinations that have no place for the wrapper. Not here: which those are
// (known_wrapper), the way back (wrapped_reader).
export module shardmesh.torch_file:component_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.catalog;
import :archived_objects;

export namespace shardmesh::torch_file {

/// A value in an archive.
struct opened_value {
  opened_object in;
  pickle::value value;
};

/// Implemented by a checkpoint_reader whose opaque tensors have no archives of their own.
class opaque_values {
 public:
  virtual ~opaque_values() = default;
  /// `tensor` is the index of an opaque tensor in the catalog. The result is valid as long as the reader.
  virtual result<opened_value> open_opaque(std::size_t tensor) = 0;
};

/// Which tensors `unwrap_tensors` takes apart.
enum class to_unwrap : std::uint8_t {
  all,
  without_archive  // those that nothing can copy as they are: of a .pt file, or of an object
};

/// Where the components of one of the inner reader's tensors are in the result's catalog.
struct unwrapped_tensor {
  std::size_t first_tensor = 0, tensors = 0;  // in the order of its class
  std::size_t description = 0;                // the object `KEY.wrapper`
};

/// A checkpoint seen without wrapping tensors.
struct unwrapped_checkpoint {
  std::unique_ptr<checkpoint_reader> reader;                // null: nothing was taken apart
  std::unordered_map<std::size_t, unwrapped_tensor> taken;  // by index into the inner reader's tensors
};

/// `inner`, which must outlive the result, with the components of its tensors of known representations in their place,
/// `KEY.indices`, `KEY.values`, and an object `KEY.wrapper`, a dict that says how they belong together
/// (docs/formats.md). Sharded ones, and those of other classes or unknown versions of theirs, stay.
/// errc::duplicate_key when another entry has the name of a component. Cost: opens an item of every tensor, as
/// `identify_opaque_tensors` does.
result<unwrapped_checkpoint> unwrap_tensors(checkpoint_reader& inner, to_unwrap which = to_unwrap::all);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// The value of an opaque tensor of any reader; nothing where it cannot be opened.
std::optional<opened_value> open_opaque(checkpoint_reader& reader, std::size_t tensor);

}  // namespace shardmesh::torch_file
