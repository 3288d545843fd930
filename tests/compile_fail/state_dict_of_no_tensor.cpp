// SPDX-License-Identifier: Apache-2.0
// A state dict holds tensors: a type without an adapter is not one.
// expect: constraints not satisfied.*state_dict|because 'not_a_tensor' does not satisfy 'local_tensor'
import shardmesh.state;

struct not_a_tensor {};

shardmesh::state_dict<not_a_tensor> dict;
