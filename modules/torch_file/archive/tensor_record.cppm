// SPDX-License-Identifier: Apache-2.0
// Writes the pickle records that rebuild tensors, as Tensor.__reduce_ex__ does. Not exported.
module shardmesh.torch_file:tensor_record;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// Writes a reference to storage `number`, of this class and number of elements.
void write_storage_reference(pickle::writer& out, std::string_view module_name, std::string_view storage_class,
                             std::size_t number, std::int64_t count);

// Writes a tuple of integers.
void write_numbers(pickle::writer& out, const extents& numbers);

// Writes an empty collections.OrderedDict, a tensor's hooks.
void write_no_hooks(pickle::writer& out);

// Writes a tensor without gradient that covers all of storage `number`. Precondition: its size does not overflow.
void write_tensor_record(pickle::writer& out, dtype type, const extents& sizes, const extents& strides,
                         std::size_t number);

}  // namespace shardmesh::torch_file
