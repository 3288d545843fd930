// SPDX-License-Identifier: Apache-2.0
// Tests whether a communicator of your own does everything that the code above it relies on. No test framework is
// needed. The communicator concept is in comm; speed is not tested.
export module shardmesh.conformance;

export import shardmesh.comm;

export import :suite;
