// SPDX-License-Identifier: Apache-2.0
// hf_hub: the requests to a hub, and its answers as values. Internal to `remote`.
module shardmesh.remote:hf_hub;

import shardmesh.std;
import shardmesh.core;
import :hf_place;
import :hf_store;
import :http_client;
import :process_client;

namespace shardmesh::remote {

// A file or a folder of one commit.
struct hf_entry {
  std::string name;
  bool is_folder = false;
  std::int64_t size_bytes = 0;
  std::string sha256;     // of a file in large file storage; else empty
  std::string object_id;  // Git's
};

// The place of a file's bytes, which may expire.
struct hf_location {
  std::string url;
  bool takes_token = false;  // at the hub itself
};

// Thread-safe.
class hf_hub {
 public:
  hf_hub(const hf_options& options, std::shared_ptr<const process_client> client);

  // Resolves a revision to a commit.
  result<std::string> commit_of(const hf_place& place) const;
  // Lists a folder of a commit, all pages. Nothing when there is no such folder.
  result<std::optional<std::vector<hf_entry>>> list(const hf_place& place, const std::string& commit,
                                                    const std::string& folder) const;
  // Finds the bytes of a file, and checks that the hub describes it as the listing does.
  result<hf_location> locate(const hf_place& place, const std::string& commit, const hf_entry& file) const;

  const process_client& client() const { return *client_; }
  // Adds the user's token to a request.
  result<void> authorise(http_request& request) const;

 private:
  result<hf_token> find_token() const { return token_ ? token_() : result<hf_token>(hf_token{}); }
  std::string api_url(const hf_place& place, std::string_view what) const;
  result<http_response> get(const std::string& url, std::int64_t limit_bytes) const;
  result<std::string> add_page(const http_response& answer, const std::string& folder, std::vector<hf_entry>& to) const;
  error refusal(const http_response& answer, const hf_place& place) const;

  std::string endpoint_;  // without "/" at its end
  std::function<result<hf_token>()> token_;
  std::shared_ptr<const process_client> client_;
};

}  // namespace shardmesh::remote
