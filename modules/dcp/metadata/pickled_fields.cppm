// SPDX-License-Identifier: Apache-2.0
// Not exported: reads the classes and fields of pickled DCP metadata, whatever protocol and PyTorch wrote them.
// Requirements on a whole entry are in `metadata`.
module shardmesh.dcp:pickled_fields;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::dcp {

// Returns "module.Name" of a record's class, for messages.
std::string class_text(pickle::value value);
// Returns the class's name alone; empty when the value is not a record.
std::string_view class_name(pickle::value value);
// Returns whether the value's class is `type` of PyTorch's checkpoint metadata. The package moved with 2.0.
bool is_metadata_class(pickle::value value, std::string_view type);

// Reads torch.Size((..)), or a plain tuple or list, of integers that are not negative. `what` is for messages.
result<extents> read_sizes(pickle::value value, std::string_view what);
// Reads strides. They are only informative, so invalid strides count as none.
std::optional<extents> read_strides(pickle::value strides, std::size_t rank);
// Returns one field of TensorProperties. Its state is a tuple, in which the field has this index, or a dict in foreign
// files.
pickle::value property(pickle::value properties, std::size_t index, std::string_view field);
// Reads the enum _MEM_FORMAT_ENCODING(n), which may also be written through builtins.getattr(class, "NAME").
std::int32_t read_memory_format(pickle::value value);
// Returns whether `name` is a dtype of PyTorch 2.13 that shardmesh lacks: one of quantized tensors, or an integer
// without arithmetic.
bool is_other_torch_dtype(std::string_view name);
// Reads a relative path. It is text; foreign writers pickle a pathlib path.
std::optional<std::string> read_relative_path(pickle::value value);

}  // namespace shardmesh::dcp
