// SPDX-License-Identifier: Apache-2.0
// Strided copies, casts, sums, and comparisons of tensor views, tuned for the host; and the same work as batches,
// tables that a backend runs in its own memory. The plain loops in tests/support/reference_kernels.cpp define each
// operation, and every backend is compared with them. The choice of bytes to move is in transfer; backends beyond the
// host are in the optional rooms.
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
