// SPDX-License-Identifier: Apache-2.0
// shardmesh.simulation: up to tens of thousands of ranks in one process, which take turns. Their messages are counted,
// and a model of a network gives the time that they would take. For tests and estimates of collective code; it moves
// real bytes, but measures no speed. Ranks that run at the same time are in room comm (thread_group).
export module shardmesh.simulation;

export import shardmesh.comm;

export import :network_model;
export import :simulate_ranks;
export import :simulated_communicator;
export import :simulation_report;
