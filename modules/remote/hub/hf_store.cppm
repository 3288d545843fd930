// SPDX-License-Identifier: Apache-2.0
// hf_store: model repositories of the Hugging Face hub as a store that is only read.
export module shardmesh.remote:hf_store;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :http_client;

export namespace shardmesh::remote {

/// A user's token for a hub.
struct hf_token {
  /// Empty: requests are anonymous.
  std::string text{};
  /// The place of the token, for messages: "HF_TOKEN".
  std::string source{};
};

/// How a hub is reached.
struct hf_options {
  /// The hub's address. Empty: the value of HF_ENDPOINT, or https://huggingface.co.
  std::string endpoint{};
  /// Finds the user's token. Called before each request to the hub, so that a token can be replaced. Only the hub gets
  /// it. Without this function, requests are anonymous.
  std::function<result<hf_token>()> token{};
  http_options http{};
};

/// Makes the store of the scheme hf: `hf://owner/name@revision/path`. The revision is a branch, a tag, a commit, or
/// refs/pr/N; without "@", it is main. A repository without an owner is `hf://name`, or `hf://name@revision/path`. The
/// store resolves a revision to a commit once, so all files that a program reads under this revision are of one commit.
/// The version of a file is its SHA-256, or its Git object id when it is not in large file storage.
std::shared_ptr<const store> make_hf_store(const hf_options& options = {});

}  // namespace shardmesh::remote
