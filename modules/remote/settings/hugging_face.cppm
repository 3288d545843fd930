// SPDX-License-Identifier: Apache-2.0
// The Hugging Face hub's URL and token, found as the package huggingface_hub finds them.
export module shardmesh.remote:hugging_face;

import shardmesh.std;
import shardmesh.core;
import :environment;
import :secret;

export namespace shardmesh::remote {

/// A token of the hub. Without one, requests are anonymous.
struct hugging_face_token {
  secret text{};
  std::string source{};  // for messages: "HF_TOKEN", "~/.cache/huggingface/token"; empty without a token

  friend bool operator==(const hugging_face_token&, const hugging_face_token&) = default;
};

/// Finds the token: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, and the files HF_TOKEN_PATH, $HF_HOME/token, and
/// ~/.cache/huggingface/token (or $XDG_CACHE_HOME/huggingface/token). The first that is set, or exists, counts. If
/// HF_HUB_DISABLE_IMPLICIT_TOKEN is true, there is none.
/// \errors errc::invalid_argument for a token with spaces or control characters; errc::io for a file that exists and
///         cannot be read; each names the source
result<hugging_face_token> find_hugging_face_token(const environment& variables);

/// Returns the hub's URL without a "/" at its end: `given`, else HF_ENDPOINT, else "https://huggingface.co".
/// \errors errc::invalid_argument for a malformed URL
result<std::string> choose_hugging_face_endpoint(std::string_view given, const environment& variables);

}  // namespace shardmesh::remote
