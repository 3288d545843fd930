// SPDX-License-Identifier: Apache-2.0
// A state dict of an IValue holds tensors of a type with an adapter.
// expect: error: no matching function for call to 'state_of'.*constraints not satisfied for class template 'state_dict'
// .with T = int
#include <shardmesh/torch_forward.hpp>

import shardmesh.torch;

bool fits(const c10::IValue& value) {
  return shardmesh::state_of<int>(value).has_value();
}
