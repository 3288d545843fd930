// SPDX-License-Identifier: Apache-2.0
// shardmesh.comm: communication between ranks: the concepts, ranks as threads of one process, and agreement.
// Plans of messages are in shardmesh.transfer; other transports are optional rooms.
export module shardmesh.comm;

export import shardmesh.layout;

export import :communicator;
export import :collectives;
export import :agreement;
export import :any_communicator;
export import :call_guard;
export import :communicator_ref;
export import :error_bytes;
export import :exchange_checks;
export import :guarded_rounds;
export import :lending;
export import :object_numbers;
export import :peer_memory;
export import :rank_group;
export import :rank_tree;
export import :run_ranks;
export import :sized_messages;
export import :subgroup;
export import :thread_group;
export import :trace;
export import :wire;
