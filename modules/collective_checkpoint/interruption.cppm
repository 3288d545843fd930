// SPDX-License-Identifier: Apache-2.0
// Not exported: interruption, which stops a save or a load when the caller cancels it or its deadline passes.
module shardmesh.collective_checkpoint:interruption;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Fires when the caller's token fires or the deadline has passed; the progress callbacks of the work poll it.
class interruption {
 public:
  // `what` names the work in errors.
  interruption(const call_options& call, std::string what)
      : what_(std::move(what)), deadline_(call.within), on_cancel_(call.cancel, stop{&source_}) {}

  std::stop_token token() const { return source_.get_token(); }
  void poll() {
    if (deadline_ && std::chrono::steady_clock::now() >= *deadline_ && !late_.exchange(true)) source_.request_stop();
  }
  result<void> check() {
    poll();
    if (late_) return detail::limit_error(errc::deadline_exceeded, what_);
    if (source_.stop_requested()) return detail::limit_error(errc::cancelled, what_);
    return {};
  }

 private:
  struct stop {
    std::stop_source* source;
    void operator()() const { source->request_stop(); }
  };
  std::string what_;
  std::stop_source source_;
  time_limit deadline_;
  std::atomic<bool> late_ = false;
  std::stop_callback<stop> on_cancel_;
};

}  // namespace shardmesh
