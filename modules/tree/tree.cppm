// SPDX-License-Identifier: Apache-2.0
// shardmesh.tree: nested containers of a user's state as a flat tree: typed paths, the flat tree spec, key policies,
// functions that walk, compare, and rebuild trees of any node type, and the words for what differs. The leaves' types
// are in rooms state and checkpoint.
export module shardmesh.tree;

export import shardmesh.core;

export import :key;
export import :path;
export import :spec;
export import :edit;
export import :unflatten;
export import :key_policy;
export import :difference;
export import :state_node;
export import :visit;
export import :visit_together;
export import :transform;
export import :flat_view;
export import :local_state;
export import :state_adapter;
export import :walk;
