// SPDX-License-Identifier: Apache-2.0
// shardmesh.remote: checkpoints that are not on this machine, as stores. `http_client` decides which answers of servers
// are accepted. `sigv4` signs requests, and `credential_provider` finds and refreshes the keys. The stores translate
// URLs into requests. The room knows no format of checkpoints.
export module shardmesh.remote;

export import shardmesh.core;
export import shardmesh.storage;

export import :aws_credentials;
export import :aws_endpoint;
export import :aws_profile;
export import :credential_chain;
export import :credential_provider;
export import :environment;
export import :hf_store;
export import :http_call;
export import :http_client;
export import :http_store;
export import :hugging_face;
export import :percent_encoding;
export import :s3_address;
export import :s3_store;
export import :secret;
export import :sigv4;
export import :utc_time;
