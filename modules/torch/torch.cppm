// SPDX-License-Identifier: Apache-2.0
// shardmesh.torch: modules and process groups of LibTorch. The header shardmesh/torch_tensor.hpp makes an at::Tensor a
// tensor of shardmesh. No interface of this room includes LibTorch: the importing file includes the headers that it
// uses.
export module shardmesh.torch;

export import :c10d_communicator;
export import :ivalue;
export import :module_state;
export import :module_checkpoint;
export import :module_ranks;
