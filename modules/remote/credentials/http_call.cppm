// SPDX-License-Identifier: Apache-2.0
// http_call: the function that sends the requests of credential sources. The HTTP client of this room provides it, and
// tests provide their own.
export module shardmesh.remote:http_call;

import shardmesh.std;
import shardmesh.core;
import :percent_encoding;

export namespace shardmesh::remote {

/// A small request. Its headers and its body can hold secrets.
struct http_call_request {
  std::string method = "GET";
  std::string url{};
  name_values headers{};
  std::string body{};
  std::chrono::milliseconds timeout{5000};  // for the whole exchange
  std::stop_token cancel{};
};

/// The response to a small request.
struct http_call_response {
  int status = 0;
  std::string body{};
};

/// Sends one request and returns the response, whatever its status. The function follows no redirect, uses no proxy for
/// 169.254.0.0/16, fd00:ec2::/32, and loopback addresses, reads at most 1 MiB, and does not retry. Its errors name
/// neither headers nor bodies. It may be called by several threads at once.
using http_call = std::function<result<http_call_response>(const http_call_request&)>;

}  // namespace shardmesh::remote
