// SPDX-License-Identifier: Apache-2.0
// shardmesh.pickle: Python pickles, read as inert values and written: nothing is imported, looked up or called. The one
// place where a class name is looked up (names). Not here: tensors (torch_file), limits (storage).
export module shardmesh.pickle;

export import shardmesh.core;

export import :excerpt;
export import :names;
export import :python_object;
export import :python_text;
export import :value;
export import :writer;
