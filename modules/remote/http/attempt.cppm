// SPDX-License-Identifier: Apache-2.0
// attempt: one exchange with a server, and the inbox of the call that waits for its end. The driver's thread fills it
// in; the call's thread decides what it means. Internal to `remote`.
module shardmesh.remote:attempt;

import shardmesh.std;
import shardmesh.core;
import :http_client;

namespace shardmesh::remote {

// The receiver of an answer's body. The driver's thread calls it, so it must not block. It lives until the attempt is
// in its inbox.
class body_sink {
 public:
  virtual ~body_sink() = default;
  // Called once, after the headers and before the first byte. False ends the attempt.
  virtual bool begin(const http_response& head) = 0;
  // False ends the attempt.
  virtual bool take(std::span<const std::byte> bytes) = 0;
};

class inbox;
struct attempt;

// Attempts that wait for the driver, or for their call. An element is made with its attempt and travels between lists,
// so that neither the driver's thread nor a withdrawal needs memory.
using attempt_list = std::list<std::shared_ptr<attempt>>;

struct attempt {
  using time_point = std::chrono::steady_clock::time_point;
  enum class ending {
    answered,   // `head` is complete, and so is the body
    refused,    // the sink ended the attempt
    failed,     // `curl_code` and `reason`
    stalled,    // too few bytes arrived for too long
    withdrawn,  // by the call, or by the client's destructor
  };

  // Set by the call, and unchanged from then on.
  http_request request;
  body_sink* sink = nullptr;
  std::shared_ptr<inbox> to;
  // Set by `driver::withdraw`.
  std::atomic<bool> is_unwanted = false;
  // One empty element while the attempt is in no list, and none while it is in one.
  attempt_list place = attempt_list(1);
  // Set by the driver, before the attempt is in the inbox.
  ending end = ending::withdrawn;
  int curl_code = 0;
  std::string reason;
  http_response head;  // without a body
  // Of an answer: when the request was sent, when the headers were complete, and when the body was.
  time_point sent_at{}, answered_at{}, ended_at{};
};

// Returns a list with one attempt, which is in no list, to be spliced into another. Allocates nothing.
attempt_list listed(std::shared_ptr<attempt> one);
// Takes an attempt out of a list. Allocates nothing.
std::shared_ptr<attempt> take_from(attempt_list& all, attempt_list::iterator at);

// The attempts of one call that have ended. The driver may still hold the inbox when the call has returned.
class inbox {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // Allocates nothing.
  void post(std::shared_ptr<attempt> ended);
  // Ends a `take` that waits, if its `cancel` has been requested.
  void wake();
  // Waits for an attempt. Returns null at `until`, and as soon as `cancel` is requested.
  std::shared_ptr<attempt> take(time_point until, const std::stop_token& cancel);

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  attempt_list ended_;
};

}  // namespace shardmesh::remote
