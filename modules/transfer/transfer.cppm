// SPDX-License-Identifier: Apache-2.0
// shardmesh.transfer: the planner and the executor, which move tensors from one distribution to another at the least
// cost. File formats are in checkpoint; transports are in comm.
export module shardmesh.transfer;

export import shardmesh.comm;
export import shardmesh.kernels;

export import :binding;
export import :cells;
export import :executor;
export import :items;
export import :owner_part;
export import :plan;
export import :plan_cache;
export import :plan_cost;
export import :rank_plan;
export import :redistribute;
export import :reduction_rules;
export import :run_items;
export import :slab_walk;
export import :static_transfer;
export import :step;
export import :step_grid;
export import :step_table;
export import :transfer_class;
export import :value_rules;
