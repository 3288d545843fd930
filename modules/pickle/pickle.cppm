// SPDX-License-Identifier: Apache-2.0
// shardmesh.pickle reads Python pickles as inert values, and writes pickles. It imports, looks up, and calls nothing.
// `names` judges the names in pickles. Tensors are in torch_file; limits are in storage.
export module shardmesh.pickle;

export import shardmesh.core;

export import :excerpt;
export import :names;
export import :python_object;
export import :python_text;
export import :value;
export import :writer;
