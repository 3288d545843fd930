// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :attempt;
import :driver;
import :client_call;

namespace shardmesh::remote {

client_call::client_call(std::shared_ptr<driver> work, const call_options& call)
    : work_(std::move(work)),
      within_(call.within),
      cancel_(call.cancel),
      inbox_(std::make_shared<inbox>()),
      on_cancel_(call.cancel, [box = inbox_] { box->wake(); }) {}

client_call::~client_call() {
  end_all();
}

std::shared_ptr<attempt> client_call::start(http_request request, body_sink& sink) {
  auto made = std::make_shared<attempt>();
  made->request = std::move(request);
  made->sink = &sink;
  made->to = inbox_;
  running_.push_back(made);
  work_->start(made);
  return made;
}

std::shared_ptr<attempt> client_call::next(clock::time_point until) {
  if (reached_limit() != errc::ok) return nullptr;
  if (within_) until = std::min(until, *within_);
  auto ended = inbox_->take(until, cancel_);
  if (ended) running_.remove(ended);
  return ended;
}

bool client_call::pause(clock::time_point until) {
  while (reached_limit() == errc::ok && clock::now() < until) next(until);
  return reached_limit() == errc::ok;
}

void client_call::end_all() {
  for (const auto& one : running_) work_->withdraw(one);
  while (!running_.empty()) running_.remove(inbox_->take(clock::time_point::max(), {}));
}

error client_call::end_at_limit(std::string_view url) {
  const errc ended = reached_limit();
  end_all();
  return detail::limit_error(ended, "request").with_file(printable_url(url));
}

}  // namespace shardmesh::remote
