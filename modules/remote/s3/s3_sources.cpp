// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :aws_profile;
import :credential_provider;
import :environment;
import :http_call;
import :s3_sources;

namespace shardmesh::remote {
namespace {

constexpr std::string_view google_endpoint = "https://storage.googleapis.com";
// The servers that hand out credentials near the program.
constexpr const char* near_hosts =
    "169.254.169.254,169.254.170.2,169.254.170.23,fd00:ec2::254,fd00:ec2::23,localhost,127.0.0.1,::1";
constexpr std::int64_t most_answer_bytes = 1 << 20;

// Requests for credentials: one attempt each, because their sources decide what follows a failure.
http_call make_http_call(const http_options& options) {
  http_options once = options;
  once.attempts = 1;
  once.direct_hosts = near_hosts;
  const auto client = std::make_shared<const process_client>(once);
  return [client](const http_call_request& asked) -> result<http_call_response> {
    SHARDMESH_TRY(const auto* const sender, client->get());
    http_request request{.method = asked.method, .url = asked.url};
    request.headers.assign(asked.headers.begin(), asked.headers.end());
    request.body = std::as_bytes(std::span(asked.body));
    SHARDMESH_TRY(http_response answer,
                  sender->send(request, most_answer_bytes, {}, {.within = asked.timeout, .cancel = asked.cancel}));
    http_call_response made{answer.status, {}};
    made.body.assign(reinterpret_cast<const char*>(answer.body.data()), answer.body.size());
    return made;
  };
}

struct s3_state {
  s3_state(const s3_options& options, std::string name, environment copy)
      : given(options.settings),
        scheme(std::move(name)),
        profile(choose_profile(options.profile, copy)),
        variables(std::move(copy)),
        provider({.given = options.credentials,
                  .profile = options.profile,
                  .is_anonymous = options.settings.is_anonymous,
                  .variables = variables,
                  .call = make_http_call(options.http)}) {}

  s3_settings given;
  std::string scheme, profile;
  environment variables;
  credential_provider provider;
  std::mutex lock;
  std::optional<aws_credentials> last;
};

}  // namespace

s3_sources find_s3_sources(const s3_options& options, const std::string& scheme) {
  const auto state = std::make_shared<s3_state>(options, scheme, process_environment());
  s3_sources sources;
  sources.settings = [state]() -> result<s3_settings> {
    SHARDMESH_TRY(const aws_files files, read_aws_files(state->variables));
    SHARDMESH_TRY(s3_settings chosen, choose_s3_settings(state->given, state->variables, files, state->profile));
    if (state->scheme == "gs" && chosen.endpoint.empty()) chosen.endpoint = google_endpoint;
    return chosen;
  };
  sources.credentials = [state](const call_options& call) -> result<aws_credentials> {
    SHARDMESH_TRY(aws_credentials found, state->provider.credentials(call));
    const std::scoped_lock guard(state->lock);
    state->last = found;
    return found;
  };
  sources.renew = [state] {
    std::optional<aws_credentials> refused;
    {
      const std::scoped_lock guard(state->lock);
      refused = state->last;
    }
    if (refused) state->provider.discard(*refused);
  };
  return sources;
}

}  // namespace shardmesh::remote
