// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <utility>
module shardmesh.remote;

import :attempt;
import :driver;
import :client_call;

namespace shardmesh::remote {

client_call::client_call(std::shared_ptr<driver> work, const call_options& call)
    : work_(std::move(work)),
      scope_(call),
      inbox_(std::make_shared<inbox>()),
      on_cancel_(limits().cancel, [box = inbox_] { box->wake(); }) {}

client_call::~client_call() {
  end_all();
}

std::shared_ptr<attempt> client_call::start(http_request request, body_sink& sink) {
  auto made = std::make_shared<attempt>();
  made->request = std::move(request);
  made->sink = &sink;
  made->to = inbox_;
  running_.push_back(made);
  work_->start(made);  // throws nothing: `end_all` waits for every attempt in the list
  return made;
}

std::shared_ptr<attempt> client_call::next(clock::time_point until) {
  if (reached_limit() != errc::ok) return nullptr;
  if (limits().within) until = std::min(until, *limits().within);
  auto ended = inbox_->take(until, limits().cancel);
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

error client_call::end_at_limit(const http_request& waits_for) {
  const errc ended = reached_limit();
  end_all();
  return scope_.limit_error(ended, "the answer to " + waits_for.method).with_file(printable_url(waits_for.url));
}

}  // namespace shardmesh::remote
