// SPDX-License-Identifier: Apache-2.0
// shardmesh.transfer: the one planner and the one executor: from one distribution to another, at the least cost.
// Not here: file formats (checkpoint), transports (comm).
export module shardmesh.transfer;

export import shardmesh.comm;
export import shardmesh.kernels;

export import :binding;
export import :executor;
export import :items;
export import :plan;
export import :plan_cache;
export import :plan_cost;
export import :rank_plan;
export import :redistribute;
export import :run_items;
export import :slab_walk;
export import :step;
