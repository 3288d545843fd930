// SPDX-License-Identifier: Apache-2.0
// shardmesh.conformance: does a communicator of your own do what everything above it counts on? For tests; no test
// framework is needed. Not here: the concept (comm), how fast it is.
export module shardmesh.conformance;

export import shardmesh.comm;

export import :suite;
