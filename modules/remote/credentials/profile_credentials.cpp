// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :credential_context;
import :credential_process;
import :environment_credentials;
import :profile_credentials;
import :server_credentials;
import :sso_credentials;
import :sts;

namespace shardmesh::remote {
namespace {

constexpr std::size_t most_profiles = 16;  // of one chain: each is a request, and a level of recursion

using found_credentials = result<std::optional<aws_credentials>>;

// Follows `source_profile` from profile to profile.
class profile_search {
 public:
  explicit profile_search(const credential_context& context) : context_(context) {}

  // `is_source`: another profile names this one. Its keys then come before its role, as in the AWS tools, so that a
  // profile can hold both and name itself.
  found_credentials find(const std::string& profile, bool is_source) {
    const auto setting = [&](std::string_view name) { return context_.files.setting(profile, name); };
    if (is_source && !setting("aws_access_key_id").empty()) return keys_of(profile);
    if (std::find(visited_.begin(), visited_.end(), profile) != visited_.end())
      return fail(errc::invalid_argument, fmt::format("the profiles {}, {} name each other as source_profile",
                                                      fmt::join(visited_, ", "), profile))
          .with_file(context_.files.place(profile, "source_profile"))
          .with_hint("end the chain with a profile that has keys");
    if (visited_.size() == most_profiles)
      return fail(errc::invalid_argument,
                  fmt::format("more than {} profiles name each other as source_profile", most_profiles))
          .with_file(context_.files.place(visited_.back(), "source_profile"));
    visited_.push_back(profile);
    if (!setting("role_arn").empty()) return role_of(profile);
    if (uses_sso(context_.files, profile)) return found(sso_credentials(context_, profile));
    if (!setting("aws_access_key_id").empty() || !setting("aws_secret_access_key").empty()) return keys_of(profile);
    if (const std::string_view command = setting("credential_process"); !command.empty()) {
      auto made = process_credentials(command, context_.limits);
      if (!made) return std::move(made).error();
      made->source = fmt::format("credential_process of profile {}", profile);
      return found(std::move(made));
    }
    return std::optional<aws_credentials>{};
  }

 private:
  static found_credentials found(result<aws_credentials> made) {
    if (!made) return std::move(made).error();
    return std::optional(*std::move(made));
  }

  error refuse(const std::string& profile, std::string_view setting, std::string message) const {
    return fail(errc::invalid_argument, fmt::format("the profile {} {}", profile, message))
        .with_file(context_.files.place(profile, setting));
  }

  found_credentials keys_of(const std::string& profile) const {
    const auto setting = [&](std::string_view name) { return context_.files.setting(profile, name); };
    for (const char* const name : {"aws_access_key_id", "aws_secret_access_key"})
      if (setting(name).empty()) {
        const bool has_access_key = !setting("aws_access_key_id").empty();
        return refuse(profile, has_access_key ? "aws_access_key_id" : "aws_secret_access_key",
                      fmt::format("lacks the setting {}", name))
            .with_hint("set both, or none");
      }
    aws_credentials made;
    made.access_key = setting("aws_access_key_id");
    made.secret_key = secret(setting("aws_secret_access_key"));
    made.session_token = secret(setting("aws_session_token"));
    const auto& files = context_.files.profiles;
    made.source = fmt::format("profile {} in {}", profile, files.at(profile).at("aws_access_key_id").file);
    return std::optional(std::move(made));
  }

  found_credentials role_of(const std::string& profile) {
    const auto setting = [&](std::string_view name) { return std::string(context_.files.setting(profile, name)); };
    const role_request role{.arn = setting("role_arn"),
                            .session_name = setting("role_session_name"),
                            .external_id = setting("external_id"),
                            .duration = setting("duration_seconds")};
    if (const std::string token_file = setting("web_identity_token_file"); !token_file.empty())
      return found(assume_role_with_token(context_, role, token_file));
    if (!setting("mfa_serial").empty())
      return fail(errc::unsupported, fmt::format("the role of the profile {} needs the code of an MFA device", profile))
          .with_file(context_.files.place(profile, "mfa_serial"))
          .with_hint("use SSO, or a credential_process that asks for the code");
    const std::string by_profile = setting("source_profile"), by_source = setting("credential_source");
    if (by_profile.empty() == by_source.empty())
      return refuse(profile, "role_arn",
                    by_profile.empty() ? "has a role, but neither source_profile nor credential_source"
                                       : "has both source_profile and credential_source")
          .with_hint("set one of the two");
    auto source = by_source.empty() ? find(by_profile, true) : of_source(profile, by_source);
    if (!source) return std::move(source).error();
    if (!*source)
      return refuse(
          profile, by_source.empty() ? "source_profile" : "credential_source",
          fmt::format("takes its role with {} {}, which has no credentials",
                      by_source.empty() ? "the profile" : "the source", by_source.empty() ? by_profile : by_source));
    return found(assume_role(context_, role, **source));
  }

  found_credentials of_source(const std::string& profile, const std::string& source) const {
    if (source == "Environment") return environment_credentials(context_.variables);
    if (source == "EcsContainer") return container_credentials(context_);
    if (source == "Ec2InstanceMetadata") {
      std::string why_not;
      return instance_credentials(context_, why_not);
    }
    return refuse(profile, "credential_source", "has an unknown credential_source")
        .with_values("Environment, EcsContainer, or Ec2InstanceMetadata", shortened(escaped(source), 40));
  }

  const credential_context& context_;
  std::vector<std::string> visited_;
};

}  // namespace

result<std::optional<aws_credentials>> profile_credentials(const credential_context& context,
                                                           std::string_view profile) {
  return profile_search(context).find(std::string(profile), false);
}

}  // namespace shardmesh::remote
