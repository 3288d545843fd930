// SPDX-License-Identifier: Apache-2.0
// shardmesh.draw: pictures of layouts, plans and trees. Not here: deciding anything.
export module shardmesh.draw;

export import shardmesh.tree;
export import shardmesh.transfer;

export import :text;
export import :svg;
export import :tree;
