// SPDX-License-Identifier: Apache-2.0
// client_call: one call's limits, and its attempts in flight. Internal to `remote`.
module shardmesh.remote:client_call;

import shardmesh.std;
import shardmesh.core;
import :attempt;
import :driver;
import :http_client;

namespace shardmesh::remote {

// Made, used, and destroyed by the call's thread alone. Sinks and bodies of its attempts must live until `end_all` or
// the destructor.
class client_call {
 public:
  using clock = std::chrono::steady_clock;

  client_call(std::shared_ptr<driver> work, const call_options& call);
  ~client_call();
  client_call(const client_call&) = delete;
  client_call& operator=(const client_call&) = delete;

  std::shared_ptr<attempt> start(http_request request, body_sink& sink);
  // Ends an attempt soon. `next` returns it like every other.
  void withdraw(const std::shared_ptr<attempt>& unwanted) { work_->withdraw(unwanted); }
  // Waits for the end of an attempt. Returns null at `until`, and when the call has reached a limit.
  std::shared_ptr<attempt> next(clock::time_point until = clock::time_point::max());
  // Waits until a time, while no attempt is in flight. Returns false when the call has reached a limit.
  bool pause(clock::time_point until);
  // Returns when the user's call began, of which this one is a part.
  clock::time_point whole_call_began() const { return scope_.outermost_began(); }
  // Returns the limit that the call has reached, or errc::ok.
  errc reached_limit() const { return detail::limit_reached(limits().cancel, limits().within); }
  // Withdraws all attempts and waits for them. Afterwards nothing uses the call's memory.
  void end_all();
  // The same; returns the error of the limit that the call has reached.
  error end_at_limit(const http_request& waits_for);

 private:
  const call_options& limits() const { return scope_.limits(); }

  std::shared_ptr<driver> work_;
  detail::call_scope scope_;  // joins the limits of the call with those of the thread
  std::shared_ptr<inbox> inbox_;
  std::list<std::shared_ptr<attempt>> running_;
  std::stop_callback<std::function<void()>> on_cancel_;
};

}  // namespace shardmesh::remote
