// SPDX-License-Identifier: Apache-2.0
// shardmesh.draw: pictures of layouts, plans and trees. It draws the decisions of other rooms and makes none of its
// own.
export module shardmesh.draw;

export import shardmesh.tree;
export import shardmesh.transfer;

export import :text;
export import :svg;
export import :tree;
