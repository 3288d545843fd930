// SPDX-License-Identifier: Apache-2.0
// shardmesh.cuda: tensors in CUDA memory. An optional room that builds without CUDA and finds its libraries at run
// time.
export module shardmesh.cuda;

export import shardmesh.kernels;

export import :backend;
export import :device_tensor;
export import :functions;
export import :kernel_cache;
export import :kernel_compiler;
export import :kernel_library;
export import :nvrtc;
export import :runtime;
export import :shared_library;
export import :stream;
