// SPDX-License-Identifier: Apache-2.0
// Strided copies, casts, sums, and comparisons of tensor views, tuned for the host. Batches describe the same work as
// tables that a backend runs in its own memory. The plain loops in tests/support/reference_kernels.cpp define each
// operation, and every backend is compared with them. The choice of bytes to move is in transfer; backends for other
// devices are in optional rooms.
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
