// SPDX-License-Identifier: Apache-2.0
// Presents the tensors inside a checkpoint's objects as entries, for destinations that cannot store such objects.
// `object_parts` splits the objects.
export module shardmesh.torch_file:split_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import :flatten;
import :item;

export namespace shardmesh::torch_file {

/// The objects that `split_objects` splits: all that hold tensors, or those that are a single opaque tensor
/// (sparse, nested), which PyTorch's DCP cannot store as a tensor.
enum class to_split : std::uint8_t { all, opaque_tensors };

/// Presents `inner`, which must outlive the result, with tensors and plain objects in place of its objects that hold
/// tensors. Null when it has none, and for formats other than dcp, torchsnapshot, parts, and delta. Unreadable objects
/// stay; reading them reports the error.
/// \errors errc::duplicate_key when a tensor inside an object has the name of another entry
/// Cost: reads every object's pickle.
result<std::unique_ptr<checkpoint_reader>> split_objects(checkpoint_reader& inner, to_split which = to_split::all);

/// Presents `inner`, which must outlive the result, with these objects flattened as a state dict would be: dicts, lists
/// with dicts or tensors in them, and instances with tensors. Null when no object can be flattened. `objects` are
/// indices into its catalog.
/// \errors those of `split_objects`
result<std::unique_ptr<checkpoint_reader>> flatten_objects(checkpoint_reader& inner,
                                                           std::span<const std::size_t> objects);

/// Returns the tensors below an item's root as entries of the object's checkpoint. Cost: O(values).
result<std::vector<tensor_entry>> tensors_inside(const torch_file::item& item, const object_entry& object);

/// Returns the catalog entry of a tensor, without chunks. Precondition: the entry is a tensor, possibly an opaque one.
tensor_entry tensor_of_entry(const torch_file::item& item, const flat_entry& entry);

}  // namespace shardmesh::torch_file
