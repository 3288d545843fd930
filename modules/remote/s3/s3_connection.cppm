// SPDX-License-Identifier: Apache-2.0
// Not exported: signed requests to S3 and to servers with its interface. This file knows regions, clocks, and refusals;
// the operations of a store are in s3_store and s3_upload.
module shardmesh.remote:s3_connection;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :http_client;
import :percent_encoding;
import :process_client;
import :s3_address;
import :s3_answers;
import :secret;
import :utc_time;

namespace shardmesh::remote {

// The name of an object: "s3://BUCKET/KEY". Keys are taken as they are; nothing in them is decoded or normalised.
struct s3_name {
  std::string bucket, key;
};
// errc::invalid_argument for a URL without a bucket.
result<s3_name> parse_s3_url(const std::string& url);

// A request, before it has an address and a signature.
struct s3_request {
  std::string method = "GET";
  s3_name of;
  name_values query{};
  name_values headers{};
  std::span<const std::byte> body{};
};

// The settings and the keys of requests. Both are found at the first request, because they may need files and servers.
struct s3_sources {
  std::function<result<s3_settings>()> settings;
  std::function<result<aws_credentials>(const call_options&)> credentials;
  // Forgets the present keys, which the server called expired.
  std::function<void()> renew{};
};

// Thread-safe.
class s3_connection {
 public:
  s3_connection(std::shared_ptr<const process_client> client, s3_sources sources, std::string scheme);

  // Sends a request, and again with another region, clock, or keys if the refusal names that cause.
  result<http_response> send(const s3_request& request, std::int64_t limit_bytes) const;
  // Reads ranges of an object that has this version and size.
  result<void> read(const s3_name& object, std::span<const http_range> ranges, const std::string& version,
                    std::int64_t total_bytes) const;

  // Returns how many bytes cost as much as a request for the object (`http_client::bytes_per_request`).
  std::int64_t bytes_per_request(const s3_name& object) const;

  // The error of an answer that refuses a request: the action, the object, the server's code, and the remedy.
  error refusal(const s3_request& request, const http_response& answer) const;
  // "s3://BUCKET/KEY"
  std::string url_of(const s3_name& name) const;
  // Facts about the server that earlier requests have found: see `store::keeps_conditions`.
  std::atomic<bool>& ignores_conditions() const { return ignores_conditions_; }
  std::atomic<bool>& has_tried_conditions() const { return has_tried_conditions_; }
  // Whether the server was found to compare If-Match with an ETag without quotation marks, as Ceph does.
  std::atomic<bool>& compares_bare_versions() const { return compares_bare_versions_; }

 private:
  struct changing {
    std::mutex lock;
    std::optional<s3_settings> settings;
    std::map<std::string, std::string> regions;  // of buckets that are elsewhere
    std::chrono::seconds skew{0};                // the server's clock minus ours
    std::string credentials;                     // describes the last ones, for messages
    secret session_token;                        // of the last ones; no message shows it
  };
  result<s3_settings> settings_of(const std::string& bucket) const;
  result<void> address_and_sign(const s3_request& from, const std::string& payload, http_request& to) const;
  bool recovers(const s3_request& from, const http_response& answer) const;
  http_request unsigned_request(const s3_request& from) const;

  std::shared_ptr<const process_client> client_;
  s3_sources sources_;
  std::string scheme_;
  std::unique_ptr<changing> state_;
  mutable std::atomic<bool> ignores_conditions_ = false, has_tried_conditions_ = false;
  mutable std::atomic<bool> compares_bare_versions_ = false;
};

}  // namespace shardmesh::remote
