// SPDX-License-Identifier: Apache-2.0
// difference: the words for what differs between two entries of a name. The comparisons are in other rooms: state dicts
// in state, checkpoints in checkpoint.
export module shardmesh.tree:difference;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// How two sides differ at one place: at a key of two checkpoints, or at a path of two state dicts.
enum class difference_kind : std::uint8_t {
  only_left,   // the right side has no such key or path
  only_right,  // the left side has no such key or path
  kind,        // a tensor against an object, a plain tensor against an opaque one, a leaf against a container, an int
               // in one state dict against a float in the other
  dtype,
  shape,
  values,      // elements of tensors; for opaque tensors, stored bytes
  object,      // the values of two objects: of anything but tensors
  layout,      // boxes of chunks or shards; the placements and mesh of a dtensor
  unreadable,  // one side could not be read, so it is unknown whether the values differ
  placement,   // devices, ranks, and groups; only in state dicts
  properties,  // requires_grad, memory format ...; only in state dicts
};
/// "only-left", "only-right", "kind", "dtype" ...
std::string_view name(difference_kind kind);

/// How two entries of one name differ. `text` is the whole finding on one line, without the name.
struct difference {
  difference_kind kind = difference_kind::values;
  std::string text;
  std::int64_t different = 0;  // number of elements, for `values` of tensors with elements
  std::int64_t elements = 0;   // of the tensor; of one local shard, for sharded tensors in memory
  extents first_index{};       // of the first element that differs, in the tensor or local shard
  double largest = 0;          // |a-b|; infinite or NaN where the values are
  friend bool operator==(const difference&, const difference&) = default;
};

}  // namespace shardmesh
