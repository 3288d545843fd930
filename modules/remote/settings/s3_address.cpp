// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :endpoint_url;
import :text_parts;

namespace shardmesh::remote {
namespace {

bool is_lower_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z');
}

// Whether a bucket's name can be a part of a host: S3's rules for names since 2018.
bool is_host_label(std::string_view bucket) {
  if (bucket.size() < 3 || bucket.size() > 63 || is_ip_address(bucket)) return false;
  if (!is_lower_alphanumeric(bucket.front()) || !is_lower_alphanumeric(bucket.back())) return false;
  for (const std::string_view pair : {"..", ".-", "-."})
    if (bucket.find(pair) != std::string_view::npos) return false;
  return std::all_of(bucket.begin(), bucket.end(),
                     [](char c) { return is_lower_alphanumeric(c) || c == '-' || c == '.'; });
}

result<void> check_bucket(std::string_view bucket) {
  if (bucket.find('@') != std::string_view::npos)  // the text before it may be a secret
    return fail(errc::invalid_argument, "the URL has a user name or a password")
        .with_hint("write s3://BUCKET/KEY, and set the keys in the environment or a profile");
  const std::size_t query = std::min(bucket.find('?'), bucket.size());  // what follows may be a secret
  const std::string shown = shortened(escaped(bucket.substr(0, query + 1)), 80);
  if (bucket.starts_with("arn:"))
    return fail(errc::unsupported, fmt::format("the bucket {} is an access point's ARN", shown))
        .with_hint("use the access point's alias as the bucket");
  if (bucket.ends_with("--x-s3"))
    return fail(errc::unsupported, fmt::format("the bucket {} is a directory bucket of S3 Express", shown))
        .with_hint("use a general purpose bucket");
  if (bucket.empty() || bucket.size() > 255 || bucket == "." || bucket == ".." ||
      std::any_of(bucket.begin(), bucket.end(),
                  [](char c) { return !is_alphanumeric(c) && c != '-' && c != '.' && c != '_'; }))
    return fail(errc::invalid_argument, "the bucket's name is malformed")
        .with_values("1 to 255 letters, digits, '-', '.', and '_'", shown)
        .with_hint("write s3://BUCKET/KEY");
  return {};
}

result<s3_addressing> addressing_of(const aws_files& files, std::string_view profile) {
  const std::string_view style = files.setting(profile, "s3.addressing_style");
  if (style.empty() || style == "auto") return s3_addressing::automatic;
  if (style == "path") return s3_addressing::path;
  if (style == "virtual") return s3_addressing::virtual_host;
  return fail(errc::invalid_argument, "the setting s3.addressing_style is unknown")
      .with_file(files.place(profile, "s3.addressing_style"))
      .with_values("auto, path, or virtual", shortened(escaped(style), 40));
}

// A switch of the environment, else of the profile.
result<bool> switch_of(const environment& variables, const char* variable, const aws_files& files,
                       std::string_view profile, std::string_view setting) {
  if (const std::string_view text = variables.variable(variable); !text.empty()) return parse_switch(text, variable);
  return parse_switch(files.setting(profile, setting), files.place(profile, setting));
}

// The host of AWS's own endpoint for a region.
std::string aws_host(const s3_settings& settings) {
  return fmt::format("s3{}{}.{}.{}", settings.uses_fips ? "-fips" : "", settings.uses_dualstack ? ".dualstack" : "",
                     settings.region, aws_domain(settings.region));
}

// Whether the bucket is a part of the host. `is_ip` says that the endpoint's host is an IP address.
result<bool> belongs_in_host(const s3_settings& settings, std::string_view bucket, bool is_ip) {
  const bool is_label = is_host_label(bucket);
  // The certificates of AWS cover one label, so a name with a dot stays in the path.
  if (settings.addressing == s3_addressing::automatic)
    return settings.endpoint.empty() && is_label && bucket.find('.') == std::string_view::npos;
  if (settings.addressing == s3_addressing::path) return false;
  if (!is_label)
    return fail(errc::invalid_argument, fmt::format("the bucket {} cannot be a part of a host", bucket))
        .with_hint("set s3.addressing_style to path");
  if (is_ip)
    return fail(errc::invalid_argument, "a bucket cannot be a part of an IP address")
        .with_hint("set s3.addressing_style to path, or use a name for the endpoint's host");
  return true;
}

}  // namespace

result<s3_settings> choose_s3_settings(const s3_settings& given, const environment& variables, const aws_files& files,
                                       std::string_view profile) {
  s3_settings made = given;
  made.region = choose_region(given.region, variables, files, profile);
  if (made.region.empty()) made.region = "us-east-1";
  SHARDMESH_TRY(made.endpoint, choose_endpoint("s3", given.endpoint, variables, files, profile));
  if (given.addressing == s3_addressing::automatic) {
    SHARDMESH_TRY(made.addressing, addressing_of(files, profile));
  }
  SHARDMESH_TRY(const bool fips, switch_of(variables, "AWS_USE_FIPS_ENDPOINT", files, profile, "use_fips_endpoint"));
  SHARDMESH_TRY(const bool dualstack,
                switch_of(variables, "AWS_USE_DUALSTACK_ENDPOINT", files, profile, "use_dualstack_endpoint"));
  constexpr const char* anonymous = "SHARDMESH_S3_ANONYMOUS";
  SHARDMESH_TRY(const bool is_anonymous, parse_switch(variables.variable(anonymous), anonymous));
  made.uses_fips = given.uses_fips || fips;
  made.uses_dualstack = given.uses_dualstack || dualstack;
  made.is_anonymous = given.is_anonymous || is_anonymous;
  const std::string accelerated = files.place(profile, "s3.use_accelerate_endpoint");
  SHARDMESH_TRY(const bool accelerates,
                parse_switch(files.setting(profile, "s3.use_accelerate_endpoint"), accelerated));
  if (accelerates)
    return fail(errc::unsupported, "S3 Transfer Acceleration is not supported")
        .with_file(accelerated)
        .with_hint("set s3.use_accelerate_endpoint to false");
  return made;
}

result<s3_address> address_of(const s3_settings& settings, std::string_view bucket, std::string_view key) {
  SHARDMESH_TRY(check_bucket(bucket));
  // The region becomes a part of the host.
  if (!is_region(settings.region))
    return fail(errc::invalid_argument, "the region is malformed")
        .with_values("letters, digits, and '-'", shortened(escaped(settings.region), 40))
        .with_hint("set AWS_REGION, or the profile's region");
  const bool is_aws = settings.endpoint.empty();
  s3_address made{.scheme = "https", .host = is_aws ? aws_host(settings) : "", .path = ""};
  bool is_ip = false;
  if (!is_aws) {
    SHARDMESH_TRY(const endpoint_url url, parse_endpoint_url(settings.endpoint, "the S3 endpoint"));
    if (url.rest.find_first_of("?%") != std::string::npos)
      return fail(errc::invalid_argument, "the URL of the S3 endpoint has a query or an encoded path")
          .with_hint("write https://HOST or http://HOST:PORT");
    made.scheme = url.scheme;
    made.host = url.authority();
    made.path = url.rest;
    is_ip = is_ip_address(url.host);
    while (made.path.ends_with('/')) made.path.pop_back();
  }
  SHARDMESH_TRY(const bool is_in_host, belongs_in_host(settings, bucket, is_ip));
  if (is_in_host) {
    made.host = fmt::format("{}.{}", bucket, made.host);
    made.path += fmt::format("/{}", key);
  } else {
    made.path += key.empty() ? fmt::format("/{}", bucket) : fmt::format("/{}/{}", bucket, key);
  }
  return made;
}

}  // namespace shardmesh::remote
