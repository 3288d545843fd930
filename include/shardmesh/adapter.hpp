// SPDX-License-Identifier: Apache-2.0
// adapter<T>: the customisation point for tensors. A header of another framework specialises it without any `import`;
// `shardmesh.core` exports the same declarations.
#pragma once
#include <shardmesh/tensor_view.hpp>

namespace shardmesh {

/// Specialise for a tensor type T:
///     template <> struct shardmesh::adapter<my_tensor> {
///       static shardmesh::tensor_view view(my_tensor&);                     // needed
///       static shardmesh::const_tensor_view view(const my_tensor&);         // of tensors that own their elements
///       static my_tensor allocate(dtype, const extents& sizes, device);     // for functions that return new tensors
///       static shardmesh::result<void> check(const my_tensor&);             // errors of tensors that are no plain memory
///       static void written(my_tensor&);                                    // called after the elements were written
///     };
/// The last three are optional; `check` needs `import shardmesh.core;` for its result. A handle, whose constness says
/// nothing of its elements, has one `view(const my_tensor&)` that gives a tensor_view. Of a `const my_tensor&` the
/// library only ever reads (`view_of`), whatever the adapter has. No member or ADL look-up takes place: foreign
/// `sizes()` and `dtype()` have other types.
template <class T>
struct adapter;

}  // namespace shardmesh
