// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :credential_check;
import :credential_context;
import :environment_credentials;
import :profile_credentials;
import :server_credentials;
import :sts;

namespace shardmesh::remote {
namespace {

using found_credentials = result<std::optional<aws_credentials>>;

found_credentials web_identity_credentials(const credential_context& context) {
  const std::string_view file = context.variables.variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string_view arn = context.variables.variable("AWS_ROLE_ARN");
  if (file.empty()) return std::optional<aws_credentials>{};
  if (arn.empty())
    return fail(errc::invalid_argument, "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not")
        .with_hint("set both, or none");
  SHARDMESH_TRY(
      aws_credentials made,
      assume_role_with_token(
          context,
          {.arn = std::string(arn), .session_name = std::string(context.variables.variable("AWS_ROLE_SESSION_NAME"))},
          file));
  return std::optional(std::move(made));
}

// A profile that was named must exist.
result<void> check_profile(const credential_context& context, bool is_named) {
  if (!is_named || context.profile == "default" || context.files.profiles.contains(context.profile)) return {};
  return fail(errc::invalid_argument, fmt::format("the profile {} is in neither ~/.aws/credentials nor ~/.aws/config",
                                                  shortened(escaped(context.profile), 100)))
      .with_hint("correct AWS_PROFILE; AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name other files");
}

error nothing_found(const credential_context& context, std::string_view why_no_instance) {
  return fail(errc::invalid_argument, "no AWS credentials were found")
      .with_values("credentials in the environment, a profile, or a server's answer",
                   fmt::format("environment: AWS_ACCESS_KEY_ID is not set; profile {}: {}; container: "
                               "AWS_CONTAINER_CREDENTIALS_FULL_URI is not set; instance: {}",
                               context.profile,
                               context.files.profiles.contains(context.profile) ? "has no credentials" : "is missing",
                               why_no_instance))
      .with_hint(
          "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket, set "
          "SHARDMESH_S3_ANONYMOUS=1");
}

// Steps 2 to 6 of the search.
result<aws_credentials> search(const credential_context& context, bool profile_is_given) {
  if (!profile_is_given) {
    SHARDMESH_TRY(auto of_environment, environment_credentials(context.variables));
    if (of_environment) return *std::move(of_environment);
    SHARDMESH_TRY(auto of_token, web_identity_credentials(context));
    if (of_token) return *std::move(of_token);
  }
  const bool is_named = profile_is_given || !context.variables.variable("AWS_PROFILE").empty() ||
                        !context.variables.variable("AWS_DEFAULT_PROFILE").empty();
  SHARDMESH_TRY(check_profile(context, is_named));
  SHARDMESH_TRY(auto of_profile, profile_credentials(context, context.profile));
  if (of_profile) return *std::move(of_profile);
  SHARDMESH_TRY(auto of_container, container_credentials(context));
  if (of_container) return *std::move(of_container);
  std::string why_not;
  SHARDMESH_TRY(auto of_instance, instance_credentials(context, why_not));
  if (of_instance) return *std::move(of_instance);
  return nothing_found(context, why_not);
}

}  // namespace

result<aws_credentials> find_credentials(const credential_sources& sources, const call_options& call) {
  constexpr const char* anonymous = "SHARDMESH_S3_ANONYMOUS";
  SHARDMESH_TRY(const bool is_anonymous, parse_switch(sources.variables.variable(anonymous), anonymous));
  if (sources.is_anonymous) return aws_credentials{.source = "anonymous"};
  if (sources.given) {
    SHARDMESH_TRY(check_credentials(*sources.given));
    aws_credentials made = *sources.given;
    if (made.source.empty()) made.source = "the caller";
    return made;
  }
  if (is_anonymous) return aws_credentials{.source = fmt::format("anonymous, by {}", anonymous)};
  SHARDMESH_TRY(shardmesh::detail::check_limits(call, "credential search"));
  SHARDMESH_TRY(const aws_files files, read_aws_files(sources.variables));
  const std::string profile = choose_profile(sources.profile, sources.variables);
  const credential_context context{.variables = sources.variables,
                                   .files = files,
                                   .profile = profile,
                                   .call = sources.call,
                                   .now = sources.clock ? sources.clock() : std::chrono::system_clock::now(),
                                   .limits = call};
  SHARDMESH_TRY(aws_credentials made, search(context, !sources.profile.empty()));
  SHARDMESH_TRY(check_credentials(made));
  return made;
}

}  // namespace shardmesh::remote
