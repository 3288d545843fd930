// SPDX-License-Identifier: Apache-2.0
// Not exported: the settings that every source of credentials reads, and the requests of those that ask a server.
module shardmesh.remote:credential_context;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :aws_profile;
import :environment;
import :http_call;
import :utc_time;

namespace shardmesh::remote {

struct credential_context {
  const environment& variables;
  const aws_files& files;
  const std::string& profile;  // the chosen one, for regions and endpoints
  const http_call& call;       // may be empty
  wall_time now;
  const call_options& limits;
};

// Sends a request within the limits of the call. `what` names the server in errors ("the container endpoint").
// \errors errc::unsupported without an HTTP client; errc::cancelled, errc::deadline_exceeded; those of the call
result<http_call_response> ask(const credential_context& context, http_call_request request, std::string_view what);

// The error of a response whose status is not 200. `said` is a message of the server without secrets, or empty.
error refused_response(std::string_view what, const http_call_response& response, std::string_view said);

// Returns whether an error ends the search for credentials: the caller's deadline has passed, or it cancelled.
bool is_limit(const error& e) noexcept;

}  // namespace shardmesh::remote
