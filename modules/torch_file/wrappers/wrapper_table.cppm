// SPDX-License-Identifier: Apache-2.0
// Not exported: the classes of wrapping tensors that we know, and what is in them. Everything that is taken apart or
// put together stands here; whatever does not is of a version that we do not know. Not here: what is done with them
// (known_wrapper, wrapper_form).
module shardmesh.torch_file:wrapper_table;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::torch_file {

// A layout of sparse tensors with two tensors of indices.
struct compressed_layout {
  std::string_view name;                      // "torch.sparse_csr"
  std::array<std::string_view, 2> component;  // the names of its index tensors
  std::size_t along = 0;                      // the dimension that the first of them counts: 0 rows, 1 columns
  bool in_blocks = false;
};
const compressed_layout* find_compressed_layout(std::string_view name);

// A class of torchao's whose state is a dict of tensors and settings.
struct wrapper_class {
  std::string_view module_name, name;
  std::span<const std::string_view> tensors;  // that a state may hold: others are of a version that we do not know
  std::size_t needed = 0;                     // the first of them, which are always there
};
// By the dotted name: "torchao.quantization.Int8Tensor".
const wrapper_class* find_wrapper_class(std::string_view type);

// A class of values among such settings: an enum, or an object with attributes.
struct setting_class {
  std::string_view module_name, name;
  bool is_enum = false;
};
const setting_class* find_setting_class(std::string_view type);

// A dtype of quantized tensors, what its numbers are stored as, and the class of its storages.
struct quantized_dtype {
  std::string_view name;  // "qint8"
  dtype stored = dtype::undefined;
  std::string_view storage_class;  // "QInt8Storage"
};
const quantized_dtype* find_quantized_dtype(std::string_view name);
const quantized_dtype* find_quantized_storage(std::string_view storage_class);

// Whether `torch.NAME` is a dtype, also one that we have no elements of ("int4").
bool is_dtype_name(std::string_view name);

}  // namespace shardmesh::torch_file
