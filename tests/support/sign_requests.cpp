// SPDX-License-Identifier: Apache-2.0
// Signs requests for tests/oracle/sigv4_botocore.py. Reads one JSON object per line: method, path, query, headers
// (lists of pairs), payload_hash, region, service, time ("2026-11-24T10:00:00Z"), access_key, secret_key,
// session_token, and for a signed URL also seconds and scheme. Prints one line for each: a JSON object of the headers,
// or the URL as a text.
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;

namespace {

std::string answer_to(const nlohmann::json& asked) {
  const auto text = [&](const char* name) { return asked.at(name).get<std::string>(); };
  const sigv4_request request{.method = text("method"),
                              .path = text("path"),
                              .query = asked.at("query").get<name_values>(),
                              .headers = asked.at("headers").get<name_values>(),
                              .payload_hash = text("payload_hash")};
  const sigv4_scope scope{
      .region = text("region"), .service = text("service"), .time = parse_utc_time(text("time")).value()};
  const aws_credentials keys{.access_key = text("access_key"),
                             .secret_key = secret(text("secret_key")),
                             .session_token = secret(text("session_token"))};
  if (asked.contains("seconds")) {
    const std::chrono::seconds valid(asked.at("seconds").get<int>());
    return nlohmann::json(presign(request, scope, keys, valid, text("scheme")).value()).dump();
  }
  nlohmann::json made = nlohmann::json::object();
  for (const auto& [name, value] : sign(request, scope, keys).value()) made[name] = value;
  return made.dump();
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) std::cout << answer_to(nlohmann::json::parse(line)) << "\n";
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "sign_requests: %s\n", e.what()), 1;
  }
  return 0;
}
