// SPDX-License-Identifier: Apache-2.0
// Presents a checkpoint's wrapping tensors of known types (sparse, nested, torchao's) as their component tensors, for
// destinations that cannot store the wrappers. `known_wrapper` knows the types; `wrapped_reader` does the reverse.
export module shardmesh.torch_file:component_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.checkpoint_core;
import :archived_objects;

export namespace shardmesh::torch_file {

/// A value in an archive.
struct opened_value {
  opened_object in;
  pickle::value value;
};

/// Interface of checkpoint readers whose opaque tensors have no archives of their own.
class opaque_values {
 public:
  virtual ~opaque_values() = default;
  /// Opens the opaque tensor at index `tensor` of the catalog. The result is valid as long as the reader.
  virtual result<opened_value> open_opaque(std::size_t tensor) = 0;
};

/// The tensors that `unwrap_tensors` splits into components.
enum class to_unwrap : std::uint8_t {
  all,
  without_archive  // those that cannot be copied unchanged: of a .pt file, or inside an object
};

/// One inner tensor: its kind, and the places of its components in the result's catalog.
struct unwrapped_tensor {
  std::size_t first_tensor = 0, tensors = 0;  // in the order of its class
  std::size_t description = 0;                // the object `KEY.wrapper`
  std::string kind{};                         // "sparse COO tensor"
  std::string lost_because{};                 // why the description cannot rebuild the tensor; empty: it can
};

/// A checkpoint without wrapping tensors.
struct unwrapped_checkpoint {
  std::unique_ptr<checkpoint_reader> reader;                // null when nothing was split
  std::unordered_map<std::size_t, unwrapped_tensor> taken;  // by index into the inner reader's tensors
};

/// Presents `inner`, which must outlive the result, with the components `KEY.indices`, `KEY.values` in place of each
/// known wrapping tensor `KEY`. An object `KEY.wrapper`, a dict, describes how the components form the wrapper
/// (docs/formats.md). Sharded wrappers, and those of other classes or unknown versions, stay.
/// \errors errc::duplicate_key when another entry has the name of a component
/// Cost: opens an item of every tensor, as `identify_opaque_tensors` does.
result<unwrapped_checkpoint> unwrap_tensors(checkpoint_reader& inner, to_unwrap which = to_unwrap::all);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// Opens the value of an opaque tensor of any reader; empty when it cannot be opened.
std::optional<opened_value> open_opaque(checkpoint_reader& reader, std::size_t tensor);

}  // namespace shardmesh::torch_file
