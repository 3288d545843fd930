// SPDX-License-Identifier: Apache-2.0
// Not exported: the classes and fields of pickled DCP metadata, whatever protocol and PyTorch wrote them. Not here:
// what a whole entry must look like (metadata).
module shardmesh.dcp:pickled_fields;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::dcp {

// "module.Name" of a record's class, for messages.
std::string class_text(pickle::value value);
// The class's name alone; empty for what is no record.
std::string_view class_name(pickle::value value);
// A class of PyTorch's checkpoint metadata: the package moved with 2.0.
bool is_metadata_class(pickle::value value, std::string_view type);

// torch.Size((..)), or a plain tuple or list, of integers that are not negative. `what` is for messages.
result<extents> read_sizes(pickle::value value, std::string_view what);
// Informative: strides that make no sense are as good as none.
std::optional<extents> read_strides(pickle::value strides, std::size_t rank);
// One field of TensorProperties: its state is a tuple in this order, or a dict in foreign files.
pickle::value property(pickle::value properties, std::size_t index, std::string_view field);
// The enum _MEM_FORMAT_ENCODING(n), also written through builtins.getattr(class, "NAME").
std::int32_t read_memory_format(pickle::value value);
// The dtypes of PyTorch 2.13 that we have no tensors of: of quantized tensors, and integers without arithmetic.
bool is_other_torch_dtype(std::string_view name);
// Relative paths are text; foreign writers pickle a pathlib path.
std::optional<std::string> read_relative_path(pickle::value value);

}  // namespace shardmesh::dcp
