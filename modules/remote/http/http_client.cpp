// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :answer_sinks;
import :attempt;
import :curl_library;
import :driver;
import :failure;
import :client_call;
import :lost_servers;
import :ranged_read;
import :request_costs;
import :retry_pace;
import :url_text;

namespace shardmesh::remote {

std::string_view http_response::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& one) { return one.first == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

struct http_client::engine {
  explicit engine(http_options given) : options(std::move(given)), work(std::make_shared<driver>(options)) {}
  // Checks that this process may use the client, and loads libcurl.
  result<void> check_use(std::string_view url) const;

  detail::maker_process maker;
  http_options options;
  // Calls in progress share the next three with a client that is being destroyed.
  std::shared_ptr<request_costs> costs = std::make_shared<request_costs>();
  std::shared_ptr<lost_servers> lost = std::make_shared<lost_servers>();
  std::shared_ptr<driver> work;
};

namespace {

error of_another_process(std::string_view url) {
  return fail(errc::invalid_argument, "the HTTP client belongs to the process that forked this one")
      .with_file(printable_url(url))
      .with_hint("make another client in this process");
}

bool may_recover(const http_request& request, int status) {
  return request.recover && status >= 300 && status < 500;
}

}  // namespace

result<void> http_client::engine::check_use(std::string_view url) const {
  if (!maker.is_this()) return of_another_process(url);
  if (auto loaded = load_curl(); !loaded) return std::move(loaded).error().with_file(printable_url(url));
  return {};
}

http_client::http_client(http_options options) : engine_(std::make_unique<engine>(std::move(options))) {}

http_client::~http_client() {
  // A forked child has no thread to join, and the state of libcurl may be half changed: the child leaks it.
  if (engine_->maker.is_this())
    engine_->work->stop();
  else
    static_cast<void>(engine_.release());
}

result<http_response> http_client::send(const http_request& request, std::int64_t limit_bytes, const http_signer& sign,
                                        const call_options& call) const {
  constexpr int most_recoveries = 2;
  SHARDMESH_TRY(engine_->check_use(request.url));
  http_options options = engine_->options;
  const std::shared_ptr<lost_servers> lost = engine_->lost;
  client_call running(engine_->work, call);
  const std::string server = origin_of(request.url);
  options.attempts = lost->attempts(server, running.whole_call_began(), options.attempts);
  if (options.attempts == 0) return lost->not_sent(server, printable_url(request.url));
  retry_pace pace(options, 1);
  const auto first = client_call::clock::now();
  int recoveries = 0;
  for (int attempts = 1;; ++attempts) {
    if (running.reached_limit() != errc::ok) return running.end_at_limit(request);
    http_request sent = request;
    if (sign) SHARDMESH_TRY(sign(sent));
    kept_body kept(limit_bytes);
    running.start(sent, kept);
    const auto ended = running.next();
    if (!ended) return running.end_at_limit(request);
    if (const auto failed = failure_of(*ended, kept.text(), options)) {
      const auto again = pace.next(*failed, attempts, first, client_call::clock::now());
      if (!again) {
        if (!failed->is_final)
          lost->add_failure(server, running.whole_call_began(), client_call::clock::now(), failed->why);
        return last_error(*failed, attempts);
      }
      if (!running.pause(*again)) return running.end_at_limit(request);
      continue;
    }
    lost->add_answer(server);
    if (kept.is_too_long())
      return fail(errc::bad_format, "the answer is too long")
          .with_file(printable_url(request.url))
          .with_values(fmt::format("at most {} bytes", limit_bytes), "more");
    http_response answer = std::move(ended->head);
    answer.body = std::move(kept.bytes());
    if (recoveries < most_recoveries && may_recover(request, answer.status) && request.recover(sent, answer)) {
      ++recoveries;
      --attempts;
      continue;
    }
    return answer;
  }
}

result<void> http_client::read(const http_request& object, std::span<const http_range> ranges,
                               const std::string& version, std::int64_t total_bytes, const http_signer& sign,
                               const call_options& call) const {
  SHARDMESH_TRY(engine_->check_use(object.url));
  for (const http_range& one : ranges) {
    const auto length = static_cast<std::int64_t>(one.out.size());
    if (one.offset < 0 || one.offset > total_bytes || length > total_bytes - one.offset)
      return fail(errc::out_of_bounds, fmt::format("{} bytes from byte {} lie outside of the object's {} bytes", length,
                                                   one.offset, total_bytes))
          .with_file(printable_url(object.url));
  }
  http_options options = engine_->options;
  const std::shared_ptr<request_costs> costs = engine_->costs;
  const std::shared_ptr<lost_servers> lost = engine_->lost;
  client_call running(engine_->work, call);
  const std::string server = origin_of(object.url);
  options.attempts = lost->attempts(server, running.whole_call_began(), options.attempts);
  if (options.attempts == 0) return lost->not_sent(server, printable_url(object.url));
  ranged_read all(running, options, {*costs, *lost}, {object, sign, version, total_bytes}, ranges);
  return all.run();
}

std::int64_t http_client::bytes_per_request(const std::string& url) const {
  return engine_->costs->bytes_per_request(origin_of(url));
}

}  // namespace shardmesh::remote
