// SPDX-License-Identifier: Apache-2.0
// shardmesh.comm: what ranks need to talk to each other. Today the concepts; the transports come with the distributed
// engine. Not here: what is sent (transfer).
export module shardmesh.comm;

export import shardmesh.layout;

export import :communicator;
export import :any_communicator;
