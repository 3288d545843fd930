// SPDX-License-Identifier: Apache-2.0
module;
#include <process_token.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>
module shardmesh.remote;

import :process_client;

namespace shardmesh::remote {

struct process_client::held {
  explicit held(const http_options& options) : client(options) {}
  detail::maker_process maker;
  http_client client;
};

process_client::process_client(http_options options) : options_(std::move(options)) {}

process_client::~process_client() {
  delete held_.load();  // in a forked child, the client's destructor leaks its thread's state
}

result<const http_client*> process_client::get() const {
  held* known = held_.load();
  if (known != nullptr && known->maker.is_this()) return &known->client;
  std::unique_ptr<held> made;
  try {
    made = std::make_unique<held>(options_);
  } catch (const std::system_error& e) {
    return fail_sys(e.code().value(), "cannot start the thread of the HTTP client", "");
  }
  // A lock could be held by a thread that does not exist after a fork. A parent's client stays allocated in the child.
  if (held_.compare_exchange_strong(known, made.get())) return &made.release()->client;
  return &known->client;
}

http_options options_of_environment() {
  http_options made;
  for (const char* const name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    made.ca_file = value;
    break;
  }
  return made;
}

}  // namespace shardmesh::remote
