// SPDX-License-Identifier: Apache-2.0
// shardmesh.kernels: strided copies, casts, sums and comparisons of tensor views on the host, tuned. What each
// does is written as plain loops in tests/support/reference_kernels.cpp, with which every backend is compared.
// Not here: which bytes go where (transfer), memory of devices (the optional rooms).
export module shardmesh.kernels;

export import shardmesh.core;

export import :copy;
export import :reduce;
export import :elementwise;
export import :compare;
