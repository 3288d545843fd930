// SPDX-License-Identifier: Apache-2.0
// failure: the reason why an attempt has no usable answer, and whether another attempt may have one. Internal to
// `remote`.
module shardmesh.remote:failure;

import shardmesh.std;
import shardmesh.core;
import :attempt;
import :http_client;

namespace shardmesh::remote {

struct failure {
  error why;
  // The number of attempts that such a failure deserves. 1: it is final.
  int attempts = 1;
  bool is_throttle = false;                   // 429 and 503: the server asks for fewer requests
  std::chrono::milliseconds retry_after{-1};  // as the server asks; negative: it does not
  bool is_final = false;                      // no later attempt can have an answer
};

// Make a failure that another attempt may overcome, and a final one.
failure repeatable(error why, const http_options& options);
failure final_failure(error why);

// Returns the error of the last attempt, with the number of attempts.
error last_error(const failure& last, int attempts);

// Returns why an attempt without a problem of its sink has failed: its connection, its stall, or a status that is
// repeated. `text` is the beginning of the answer's body.
std::optional<failure> failure_of(const attempt& ended, std::string_view text, const http_options& options);

// Returns the user information and the values of the query of a URL: signatures, and what may be one. The texts belong
// to the URL.
std::vector<std::string_view> secrets_in(std::string_view url);

// Returns the secrets in the headers and the URL of a request: the server may quote them. The texts belong to the
// request.
std::vector<std::string_view> secrets_of(const http_request& sent);

// Describes an answer for an error: "403 AccessDenied: no permission". The text is escaped, short, and without the
// secrets.
std::string answer_text(const http_response& head, std::string_view text,
                        std::span<const std::string_view> secrets = {});

// Parses the seconds of `Retry-After`, at most 30 s. Returns a negative time for a date or no header.
std::chrono::milliseconds retry_after_of(const http_response& head);

}  // namespace shardmesh::remote
