// SPDX-License-Identifier: Apache-2.0
// process_client: the client of a store in each process. A store outlives a fork; its client does not. Internal to
// `remote`.
module shardmesh.remote:process_client;

import shardmesh.std;
import shardmesh.core;
import :http_client;

namespace shardmesh::remote {

// Thread-safe.
class process_client {
 public:
  explicit process_client(http_options options);
  ~process_client();
  process_client(const process_client&) = delete;
  process_client& operator=(const process_client&) = delete;

  // Returns this process's client, which is made at the first call. The client lives as long as this object.
  // \errors errc::io when the process cannot start another thread
  result<const http_client*> get() const;

 private:
  struct held;
  http_options options_;
  mutable std::atomic<held*> held_ = nullptr;
};

// Returns options whose file of certificates is that of CURL_CA_BUNDLE or SSL_CERT_FILE, as for the curl program.
http_options options_of_environment();

}  // namespace shardmesh::remote
