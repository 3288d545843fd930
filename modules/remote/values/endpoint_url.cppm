// SPDX-License-Identifier: Apache-2.0
// Not exported: the parts of an endpoint's URL.
module shardmesh.remote:endpoint_url;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::remote {

struct endpoint_url {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower-case; an IPv6 address without its brackets
  std::string port;    // digits; empty if the URL has none
  std::string rest;    // path and query as written: empty, or begins with "/" or "?"

  // Returns the host as in a URL, and the port unless it is the scheme's.
  std::string authority() const;
  // Returns the scheme and the authority: a text for messages, because paths and queries can hold secrets.
  std::string origin() const;
};

// Parses a URL. `what` names it in errors ("AWS_ENDPOINT_URL").
// \errors errc::invalid_argument for another scheme, a user name or password, or a malformed host or port. No error
//         shows the URL.
result<endpoint_url> parse_endpoint_url(std::string_view url, std::string_view what);

// Returns whether a host is this machine: "localhost", 127.0.0.0/8, or ::1.
bool is_loopback(std::string_view host);
// Returns whether a host is an IPv4 or an IPv6 address.
bool is_ip_address(std::string_view host);

}  // namespace shardmesh::remote
