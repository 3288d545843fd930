// SPDX-License-Identifier: Apache-2.0
// `adapter<T>`: the customisation point for tensors. Another framework's header specialises it without any `import`;
// `shardmesh.core` exports the same declarations.
#pragma once
#include <shardmesh/tensor_view.hpp>

namespace shardmesh {

/// Specialise for a tensor type T:
///     template <> struct shardmesh::adapter<my_tensor> {
///       static shardmesh::tensor_view view(my_tensor&);                     // required
///       static shardmesh::const_tensor_view view(const my_tensor&);         // for tensors that own their elements
///       static my_tensor allocate(dtype, const extents& sizes, device);     // for functions that return new tensors
///       static shardmesh::result<void> check(const my_tensor&);             // rejects tensors that are not plain
///       static void written(my_tensor&);                                    // called after the elements were written
///     };
/// The last three are optional; `check` needs `import shardmesh.core;` for its result. A handle, whose constness does
/// not extend to its elements, has only `view(const my_tensor&)`, which returns a `tensor_view`. The library only ever
/// reads a `const my_tensor&` (`view_of`), whatever the adapter provides. Members and ADL are not consulted: other
/// frameworks' `sizes()` and `dtype()` return other types.
template <class T>
struct adapter;

}  // namespace shardmesh
