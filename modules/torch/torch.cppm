// SPDX-License-Identifier: Apache-2.0
// shardmesh.torch: modules and process groups of LibTorch. That an at::Tensor is a tensor of shardmesh is the header
// shardmesh/torch_tensor.hpp. No interface of this room includes LibTorch: who imports it includes what it uses.
export module shardmesh.torch;

export import :c10d_communicator;
export import :ivalue;
export import :module_state;
export import :module_checkpoint;
export import :module_ranks;
