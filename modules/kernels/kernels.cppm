// SPDX-License-Identifier: Apache-2.0
// shardmesh.kernels: strided copies, casts, sums and comparisons of tensor views on the host (the reference backend).
// Not here: which bytes go where (transfer), memory of devices (the optional rooms).
export module shardmesh.kernels;

export import shardmesh.core;

export import :copy;
export import :reduce;
export import :elementwise;
export import :compare;
