// SPDX-License-Identifier: Apache-2.0
module;
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
module shardmesh.remote;

import :endpoint_url;
import :text_parts;

namespace shardmesh::remote {
namespace {

// Only dotted quads count: "127.1" is not an address.
bool parse_ipv4(const std::string& host, in_addr& address) {
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool parse_ipv6(const std::string& host, in6_addr& address) {
  return ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_host(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '.' || c == '_';
  });
}

bool is_port(std::string_view port) {
  if (port.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), is_digit)) return false;
  const int number = std::stoi(std::string(port));
  return number >= 1 && number <= 65535;
}

bool is_rest(std::string_view rest) {
  return std::all_of(rest.begin(), rest.end(), [](char c) { return c > ' ' && c < '\x7f' && c != '\\' && c != '#'; });
}

}  // namespace

std::string endpoint_url::authority() const {
  std::string made = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (!port.empty() && port != (scheme == "https" ? "443" : "80")) made += ":" + port;
  return made;
}

std::string endpoint_url::origin() const {
  return scheme + "://" + authority();
}

result<endpoint_url> parse_endpoint_url(std::string_view url, std::string_view what) {
  const auto refuse = [&](std::string_view problem) {
    return fail(errc::invalid_argument, fmt::format("the URL of {} {}", what, problem))
        .with_hint("write https://HOST or http://HOST:PORT");
  };
  endpoint_url made;
  const std::size_t scheme_end = url.find("://");
  made.scheme = scheme_end == std::string_view::npos ? "" : lower(url.substr(0, scheme_end));
  if (made.scheme != "http" && made.scheme != "https") return refuse("begins with neither http:// nor https://");
  url.remove_prefix(scheme_end + 3);
  const std::size_t authority_end = std::min(url.find_first_of("/?#"), url.size());
  std::string_view authority = url.substr(0, authority_end);
  made.rest = url.substr(authority_end);
  if (authority.find('@') != std::string_view::npos) return refuse("has a user name or a password");
  if (!is_rest(made.rest)) return refuse("has a fragment, or a character that must be encoded");

  std::size_t host_end = authority.find(':');
  if (authority.starts_with('[')) {
    host_end = authority.find(']');
    if (host_end == std::string_view::npos) return refuse("has no ']'");
    made.host = lower(authority.substr(1, host_end - 1));
    in6_addr address{};
    if (!parse_ipv6(made.host, address)) return refuse("has a malformed IPv6 address");
    authority.remove_prefix(host_end + 1);
  } else {
    made.host = lower(authority.substr(0, host_end));
    if (!is_host(made.host)) return refuse("has a malformed host");
    authority.remove_prefix(std::min(host_end, authority.size()));
  }
  if (authority.empty()) return made;
  if (authority.front() != ':' || !is_port(authority.substr(1))) return refuse("has a malformed port");
  made.port = authority.substr(1);
  return made;
}

bool is_loopback(std::string_view host) {
  const std::string text(host);
  in_addr four{};
  if (parse_ipv4(text, four)) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  if (parse_ipv6(text, six)) return IN6_IS_ADDR_LOOPBACK(&six) != 0;
  return text == "localhost";
}

bool is_ip_address(std::string_view host) {
  const std::string text(host);
  in_addr four{};
  in6_addr six{};
  return parse_ipv4(text, four) || parse_ipv6(text, six);
}

}  // namespace shardmesh::remote
