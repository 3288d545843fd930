// SPDX-License-Identifier: Apache-2.0
// local_state: one rank's share of a tree of tensors and objects, as names, boxes, and views. Saving and loading on
// many ranks need only this from a state dict. State dicts themselves are in room state, and files in room checkpoint.
export module shardmesh.tree:local_state;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

export namespace shardmesh {

/// A value that we do not interpret but keep: the name of its type, and its bytes.
struct opaque_object {
  std::string type_name;
  std::vector<std::byte> bytes;
  friend bool operator==(const opaque_object&, const opaque_object&) = default;
};

/// A value that is not a tensor: nothing, a plain Python value, or an opaque object.
using plain_value =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::byte>, opaque_object>;

/// One box of a tensor that this rank holds. `where` is its place in the whole tensor (elements); `memory` has the same
/// sizes and any strides. The user owns the memory, which must outlive every call that receives the part.
template <tensor_view_type View>
struct basic_local_part {
  box where;
  View memory;

  operator basic_local_part<const_tensor_view>() const  // NOLINT: implicit, as for the views
    requires std::same_as<View, tensor_view>
  {
    return {where, memory};
  }
};

/// The parts of one tensor that this rank holds. Without parts, the rank knows the tensor but holds none of it.
template <tensor_view_type View>
struct basic_local_state_tensor {
  path where;
  extents shape;  // of the whole tensor
  dtype type = dtype::undefined;
  std::vector<basic_local_part<View>> parts;
  std::function<void()> written{};  // called when a load has filled the parts

  operator basic_local_state_tensor<const_tensor_view>() const  // NOLINT: implicit, as for the views
    requires std::same_as<View, tensor_view>
  {
    return {where, shape, type, {parts.begin(), parts.end()}, {}};
  }
};

/// A plain value, or a container of plain values that is kept whole, such as a list of numbers.
struct local_state_object {
  path where;
  tree_spec form;                   // the container; empty for a plain value
  std::vector<plain_value> leaves;  // of the container, in its order; or the one plain value
  friend bool operator==(const local_state_object&, const local_state_object&) = default;
};

/// All tensors and objects that one rank holds. Ranks may hold different tensors, but must agree on each tensor's shape
/// and dtype.
template <tensor_view_type View>
struct basic_local_state {
  std::vector<basic_local_state_tensor<View>> tensors;
  std::vector<local_state_object> objects;

  /// Cost: O(tensors and objects); no elements are copied.
  operator basic_local_state<const_tensor_view>() const  // NOLINT: implicit, as for the views
    requires std::same_as<View, tensor_view>
  {
    return {{tensors.begin(), tensors.end()}, objects};
  }
};

/// A box in memory that can be loaded into or saved.
using local_part = basic_local_part<tensor_view>;
/// A tensor whose parts can be loaded into or saved.
using local_state_tensor = basic_local_state_tensor<tensor_view>;
/// The state of one rank, to load into or save; a `load` by many ranks fills it.
using local_state = basic_local_state<tensor_view>;
/// A box in memory that is only read, which is enough for saving.
using const_local_part = basic_local_part<const_tensor_view>;
/// A tensor whose parts are only read.
using const_local_state_tensor = basic_local_state_tensor<const_tensor_view>;
/// The read-only state of one rank; a `save` by many ranks writes it. A `local_state` converts to it implicitly.
using const_local_state = basic_local_state<const_tensor_view>;

}  // namespace shardmesh
