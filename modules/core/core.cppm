// SPDX-License-Identifier: Apache-2.0
// shardmesh.core: the vocabulary of every other room: numbers, boxes, errors, element types, and views of tensors.
// Nothing here depends on ranks, files, or Python.
export module shardmesh.core;

export import :call_limits;
export import :call_lock;
export import :call_scope;
export import :checked;
export import :headers;
export import :extents;
export import :function_ref;
export import :box;
export import :error;
export import :result;
export import :dtype;
export import :device;
export import :tensor;
export import :host_tensor;
export import :reduction;
export import :parallel;
export import :pending;
export import :print;
export import :problem_list;
export import :text;
export import :time_limit;
