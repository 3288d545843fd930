// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
module shardmesh.remote;

import :text_parts;

namespace shardmesh::remote {
namespace {

// "s3" as in AWS_ENDPOINT_URL_S3.
std::string upper(std::string_view service) {
  std::string made(service);
  for (char& c : made)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return made;
}

// The endpoint that a profile's section `services` has for a service; empty if there is none.
result<std::string> endpoint_of_services(std::string_view service, const aws_files& files, std::string_view profile) {
  const std::string_view name = files.setting(profile, "services");
  if (name.empty()) return std::string{};
  const auto section = files.services.find(name);
  if (section == files.services.end())
    return fail(errc::invalid_argument,
                fmt::format("the profile {} names a missing section [services {}]", profile, name))
        .with_file(files.place(profile, "services"))
        .with_hint("add the section, or remove the setting");
  const auto at = section->second.find(fmt::format("{}.endpoint_url", service));
  return at == section->second.end() ? std::string{} : std::string(at->second.value.reveal());
}

}  // namespace

std::string choose_region(std::string_view given, const environment& variables, const aws_files& files,
                          std::string_view profile) {
  for (const std::string_view region : {given, variables.variable("AWS_REGION"),
                                        variables.variable("AWS_DEFAULT_REGION"), files.setting(profile, "region")})
    if (!region.empty()) return std::string(region);
  return {};
}

result<std::string> choose_endpoint(std::string_view service, std::string_view given, const environment& variables,
                                    const aws_files& files, std::string_view profile) {
  if (!given.empty()) return std::string(given);
  constexpr const char* ignored = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS";
  SHARDMESH_TRY(const bool ignores_all, parse_switch(variables.variable(ignored), ignored));
  SHARDMESH_TRY(const bool ignores_profile, parse_switch(files.setting(profile, "ignore_configured_endpoint_urls"),
                                                         files.place(profile, "ignore_configured_endpoint_urls")));
  if (ignores_all || ignores_profile) return std::string{};
  for (const std::string& name : {"AWS_ENDPOINT_URL_" + upper(service), std::string("AWS_ENDPOINT_URL")})
    if (const std::string_view url = variables.variable(name); !url.empty()) return std::string(url);
  SHARDMESH_TRY(std::string of_service, endpoint_of_services(service, files, profile));
  if (!of_service.empty()) return of_service;
  return std::string(files.setting(profile, "endpoint_url"));
}

result<bool> parse_switch(std::string_view text, std::string_view what) {
  const std::string word = lower(text);
  if (word == "true" || word == "1" || word == "yes") return true;
  if (word.empty() || word == "false" || word == "0" || word == "no") return false;
  return fail(errc::invalid_argument, fmt::format("the switch of {} is neither true nor false", what))
      .with_values("true or false", shortened(escaped(text), 40));
}

std::string_view aws_domain(std::string_view region) {
  if (region.starts_with("cn-")) return "amazonaws.com.cn";
  if (region.starts_with("us-isob-")) return "sc2s.sgov.gov";
  if (region.starts_with("us-iso-")) return "c2s.ic.gov";
  if (region.starts_with("eusc-")) return "amazonaws.eu";
  return "amazonaws.com";
}

}  // namespace shardmesh::remote
