// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :credential_context;

namespace shardmesh::remote {

result<http_call_response> ask(const credential_context& context, http_call_request request, std::string_view what) {
  if (!context.call)
    return fail(errc::unsupported, fmt::format("{} cannot be asked without an HTTP client", what))
        .with_hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass credentials");
  SHARDMESH_TRY(shardmesh::detail::check_limits(context.limits, "credential search"));
  if (context.limits.within) {
    using std::chrono::milliseconds;
    const auto left = *context.limits.within - std::chrono::steady_clock::now();
    request.timeout = std::clamp(std::chrono::duration_cast<milliseconds>(left), milliseconds(1), request.timeout);
  }
  request.cancel = context.limits.cancel;
  auto response = context.call(request);
  wipe(request.body);
  if (response) return response;
  SHARDMESH_TRY(shardmesh::detail::check_limits(context.limits, "credential search"));
  error why = std::move(response).error();
  why.message = fmt::format("{} did not answer: {}", what, why.message);
  return why;
}

error refused_response(std::string_view what, const http_call_response& response, std::string_view said) {
  return fail(errc::io,
              fmt::format("{} gave no credentials{}{}", what, said.empty() ? "" : ": ", shortened(escaped(said), 300)))
      .with_values("status 200", fmt::format("status {}", response.status));
}

bool is_limit(const error& e) noexcept {
  return e.code == errc::cancelled || e.code == errc::deadline_exceeded;
}

}  // namespace shardmesh::remote
