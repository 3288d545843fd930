// SPDX-License-Identifier: Apache-2.0
// Tests whether your own communicator does everything that the rest of the library relies on. It needs no test
// framework and does not test speed. The communicator concept is in room comm.
export module shardmesh.conformance;

export import shardmesh.comm;

export import :suite;
