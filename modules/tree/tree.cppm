// SPDX-License-Identifier: Apache-2.0
// shardmesh.tree: nested containers of a user's state as a flat tree: typed paths, the flat tree spec, key policies.
// Not here: what the leaves are (state, checkpoint).
export module shardmesh.tree;

export import shardmesh.core;

export import :path;
export import :spec;
export import :key_policy;
