// SPDX-License-Identifier: Apache-2.0
// shardmesh.kernels: strided copies, casts, sums and comparisons of tensor views on the host, tuned; the same as tables
// of work (batches) that a backend runs wherever the memory is. What each does is written as plain loops in
// tests/support/reference_kernels.cpp, with which every backend is compared.
// Not here: which bytes go where (transfer), backends for more than the host (the optional rooms).
export module shardmesh.kernels;

export import shardmesh.core;

export import :copy;
export import :reduce;
export import :elementwise;
export import :compare;
export import :batch;
export import :device_buffer;
export import :backend;
export import :registry;
export import :copy_between;
