// SPDX-License-Identifier: Apache-2.0
// The known classes of wrapping tensors and their contents. Only classes and contents in these tables are split or
// rebuilt; others belong to unknown versions. `known_wrapper` and `wrapper_form` do the conversions. Not exported.
module shardmesh.torch_file:wrapper_table;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::torch_file {

// A sparse layout with two index tensors.
struct compressed_layout {
  std::string_view name;                      // "torch.sparse_csr"
  std::array<std::string_view, 2> component;  // the names of its index tensors
  std::size_t along = 0;                      // the dimension that the first of them counts: 0 rows, 1 columns
  bool in_blocks = false;
};
const compressed_layout* find_compressed_layout(std::string_view name);

// A class of torchao whose state is a dict of tensors and settings.
struct wrapper_class {
  std::string_view module_name, name;
  std::span<const std::string_view> tensors;  // that a state may have; any other means an unknown version
  std::size_t needed = 0;                     // number of tensors, from the first, that are always present
};
// Finds a class by its dotted name: "torchao.quantization.Int8Tensor".
const wrapper_class* find_wrapper_class(std::string_view type);

// A class of values in such settings: an enum, or an object with attributes.
struct setting_class {
  std::string_view module_name, name;
  bool is_enum = false;
};
const setting_class* find_setting_class(std::string_view type);

// A dtype of quantized tensors, the dtype that stores its integers, and the class of its storages.
struct quantized_dtype {
  std::string_view name;  // "qint8"
  dtype stored = dtype::undefined;
  std::string_view storage_class;  // "QInt8Storage"
};
const quantized_dtype* find_quantized_dtype(std::string_view name);
const quantized_dtype* find_quantized_storage(std::string_view storage_class);

// Returns whether `torch.NAME` is a dtype, including those that shardmesh lacks ("int4").
bool is_dtype_name(std::string_view name);

}  // namespace shardmesh::torch_file
