// SPDX-License-Identifier: Apache-2.0
// split_reader: a DCP folder whose objects that hold tensors are seen as these tensors: for destinations that have no
// place for such objects. Not here: how an object is taken apart (object_parts).
export module shardmesh.torch_file:split_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.catalog;
import :flatten;
import :item;

export namespace shardmesh::torch_file {

/// Which objects `split_objects` takes apart: all that hold tensors, or those that are one tensor of a representation
/// of its own (sparse, nested), which PyTorch's DCP has no tensors of.
enum class to_split : std::uint8_t { all, opaque_tensors };

/// `inner`, which must outlive the result, with tensors and plain objects in the place of its objects that hold
/// tensors; null when it has none. Objects that cannot be read stay: whoever reads them says so. Reads every object's
/// pickle. errc::duplicate_key when a tensor inside an object has the name of another entry.
result<std::unique_ptr<checkpoint_reader>> split_objects(checkpoint_reader& inner, to_split which = to_split::all);

/// `inner`, which must outlive the result, with the entries that a state dict's flattening makes of these objects
/// (dicts, lists with dicts or tensors in them, instances with tensors) in their place; null when none has any.
/// `objects`: indices into its catalog. Errors as above.
result<std::unique_ptr<checkpoint_reader>> flatten_objects(checkpoint_reader& inner,
                                                           std::span<const std::size_t> objects);

/// The tensors below an item's root, as entries of the object's checkpoint. Cost: O(values).
result<std::vector<tensor_entry>> tensors_inside(const torch_file::item& item, const object_entry& object);

/// The catalog's entry of a tensor, without chunks. Precondition: the entry is a tensor, or an opaque one.
tensor_entry tensor_of_entry(const torch_file::item& item, const flat_entry& entry);

}  // namespace shardmesh::torch_file
