// SPDX-License-Identifier: Apache-2.0
// shardmesh.remote: stores over HTTP. `http_client` decides which answers of servers are believed; the stores translate
// URLs into its requests. The room knows no format of checkpoints.
export module shardmesh.remote;

export import shardmesh.core;
export import shardmesh.storage;

export import :hf_store;
export import :http_client;
export import :http_store;
