// SPDX-License-Identifier: Apache-2.0
// s3_store: the buckets of S3, and of servers with its interface (Google Cloud Storage among them), as a store.
export module shardmesh.remote:s3_store;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :aws_credentials;
import :http_client;
import :s3_address;

export namespace shardmesh::remote {

/// How a program reaches S3. Settings that are empty come from the environment and the files of the AWS tools.
struct s3_options {
  s3_settings settings{};
  /// The profile of ~/.aws; empty: AWS_PROFILE, else "default".
  std::string profile{};
  /// Keys that replace the search for credentials.
  std::optional<aws_credentials> credentials{};
  http_options http{};
};

/// Makes the store of the scheme s3: URLs are s3://BUCKET/KEY, and the key is taken as it is. A folder is a prefix that
/// ends with "/". Objects above 16 MiB are uploaded in parts, and an upload that fails is aborted.
std::shared_ptr<const store> make_s3_store(const s3_options& options = {});

/// Makes the store of the scheme gs: Google Cloud Storage through its XML interface, with HMAC keys as credentials.
std::shared_ptr<const store> make_gs_store(const s3_options& options = {});

}  // namespace shardmesh::remote
