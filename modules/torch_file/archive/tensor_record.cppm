// SPDX-License-Identifier: Apache-2.0
// Not exported: the records that rebuild tensors, as Tensor.__reduce_ex__ pickles them.
module shardmesh.torch_file:tensor_record;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// A reference to storage `number`, of this class and number of elements.
void write_storage_reference(pickle::writer& out, std::string_view module_name, std::string_view storage_class,
                             std::size_t number, std::int64_t count);

// A tuple of integers.
void write_numbers(pickle::writer& out, const extents& numbers);

// collections.OrderedDict(): a tensor's hooks.
void write_no_hooks(pickle::writer& out);

// A tensor without gradient that is all of storage `number`. Precondition: its size fits.
void write_tensor_record(pickle::writer& out, dtype type, const extents& sizes, const extents& strides,
                         std::size_t number);

}  // namespace shardmesh::torch_file
