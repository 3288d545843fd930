// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.fake_http: servers in memory for code that sends small requests (http_call). Tests only.
module;
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

export module shardmesh.test.fake_http;

import shardmesh.remote;

export namespace shardmesh::test {

/// Answers requests by "METHOD URL", and keeps them. At other URLs, nothing answers. Copies share their answers.
class fake_http {
 public:
  using answer = std::function<result<remote::http_call_response>(const remote::http_call_request&)>;

  void serve(const std::string& request, answer with) {
    const std::lock_guard lock(state_->mutex);
    state_->answers[request] = std::move(with);
  }
  void serve(const std::string& request, int status, const std::string& body) {
    serve(request, [status, body](const remote::http_call_request&) {
      return result<remote::http_call_response>(remote::http_call_response{status, body});
    });
  }

  remote::http_call call() const {
    return [state = state_](const remote::http_call_request& request) -> result<remote::http_call_response> {
      answer with;
      {
        const std::lock_guard lock(state->mutex);
        state->requests.push_back(request);
        const auto at = state->answers.find(request.method + " " + request.url);
        if (at != state->answers.end()) with = at->second;
      }
      if (!with) return fail(errc::io, "nothing listens");
      return with(request);
    };
  }

  std::vector<remote::http_call_request> requests() const {
    const std::lock_guard lock(state_->mutex);
    return state_->requests;
  }

 private:
  struct state {
    std::mutex mutex;
    std::map<std::string, answer> answers;
    std::vector<remote::http_call_request> requests;
  };
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

/// The value of a header, or "(none)".
inline std::string header_of(const remote::http_call_request& request, std::string_view name) {
  for (const auto& [key, value] : request.headers)
    if (key == name) return value;
  return "(none)";
}

/// An environment with these variables.
inline remote::environment environment_of(const std::vector<std::pair<std::string, std::string>>& variables) {
  remote::environment made;
  for (const auto& [name, value] : variables) made.set(name, value);
  return made;
}

}  // namespace shardmesh::test
