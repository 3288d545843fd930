// SPDX-License-Identifier: Apache-2.0
// held_state: what one rank holds of a tree of tensors and objects, as names, boxes and views: all that saving and
// loading on many ranks need to know of a state dict. Not here: state dicts themselves (state), files (checkpoint).
export module shardmesh.tree:held;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

export namespace shardmesh {

/// A value that is not understood but kept: what its type is called, and its bytes.
struct opaque_object {
  std::string type_name;
  std::vector<std::byte> bytes;
  friend bool operator==(const opaque_object&, const opaque_object&) = default;
};

/// A value that is no tensor: nothing, or one of Python's plain values, or one that is kept as it is.
using plain_value =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::byte>, opaque_object>;

/// One box of a tensor that this rank holds: `where` in the whole tensor (elements), `memory` of equal sizes with any
/// strides. The memory belongs to the user and outlives every call that it is given to.
template <tensor_view_type View>
struct basic_held_part {
  box where;
  View memory;

  operator basic_held_part<const_tensor_view>() const  // NOLINT: implicit, as of the views
    requires std::same_as<View, tensor_view>
  {
    return {where, memory};
  }
};

/// What this rank holds of one tensor. Without parts the rank knows the tensor and holds nothing of it.
template <tensor_view_type View>
struct basic_held_tensor {
  path where;
  extents shape;  // of the whole tensor
  dtype type = dtype::undefined;
  std::vector<basic_held_part<View>> parts;
  std::function<void()> written{};  // called when a load has filled the parts

  operator basic_held_tensor<const_tensor_view>() const  // NOLINT: implicit, as of the views
    requires std::same_as<View, tensor_view>
  {
    return {where, shape, type, {parts.begin(), parts.end()}, {}};
  }
};

/// A plain value, or a container of plain values that is kept whole, such as a list of numbers.
struct held_object {
  path where;
  tree_spec form;                   // the container; empty for a plain value
  std::vector<plain_value> leaves;  // of the container, in its order; or the one plain value
  friend bool operator==(const held_object&, const held_object&) = default;
};

/// What one rank holds. Ranks may hold different tensors; of one tensor, all say the same shape and dtype.
template <tensor_view_type View>
struct basic_held_state {
  std::vector<basic_held_tensor<View>> tensors;
  std::vector<held_object> objects;

  /// Cost: O(tensors and objects); no elements are copied.
  operator basic_held_state<const_tensor_view>() const  // NOLINT: implicit, as of the views
    requires std::same_as<View, tensor_view>
  {
    return {{tensors.begin(), tensors.end()}, objects};
  }
};

/// A box in memory that is loaded into, and saved.
using held_part = basic_held_part<tensor_view>;
/// A tensor whose parts are loaded into, and saved.
using held_tensor = basic_held_tensor<tensor_view>;
/// All that one rank holds, to be loaded into, and saved: what `load` by many ranks fills.
using held_state = basic_held_state<tensor_view>;
/// A box in memory that is only read: all that saving asks for.
using const_held_part = basic_held_part<const_tensor_view>;
/// A tensor whose parts are only read.
using const_held_tensor = basic_held_tensor<const_tensor_view>;
/// All that one rank holds, only to be read: what `save` by many ranks writes. A `held_state` becomes one by itself.
using const_held_state = basic_held_state<const_tensor_view>;

}  // namespace shardmesh
