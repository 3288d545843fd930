// SPDX-License-Identifier: Apache-2.0
// The call that a run serves: its options, its limits, its stream, and its progress. Exports nothing.
module shardmesh.transfer:run_call;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

class run_call {
 public:
  // `progress` may be empty.
  inline run_call(std::int32_t rank, std::function<void(std::int64_t bytes)> progress)
      : rank_(rank), progress_(std::move(progress)) {}

  inline void begin(call_options options) { options_ = std::move(options); }
  inline void set_tag(std::uint32_t tag) { options_.tag = tag; }
  // Work of a backend runs on this stream. A null stream is the backend's own order.
  inline void set_stream(stream_ref stream) { stream_ = stream; }
  inline void end() { options_ = {}; }

  // The options as the caller gave them, apart from the tag.
  inline const call_options& options() const { return options_; }
  // The options, with the stream of the run. Without a backend, the same as `options`.
  call_options on_stream() const;
  inline stream_ref stream() const { return stream_.value_or(stream_ref{}); }
  inline bool is_on_stream() const { return stream().handle != nullptr; }
  inline bool is_on_users_stream() const { return options_.stream.handle != nullptr; }

  // Fails if the call was cancelled or its deadline has passed.
  result<void> check() const;
  // The same, but checks a call with a deadline only from `grace` after it on: until then, another rank may know more.
  result<void> check_late(std::chrono::milliseconds grace) const;
  // Checks between pieces of work, once every few MiB or every 256 pieces. `bytes` is the size of the last piece.
  inline result<void> check_after(std::int64_t bytes) { return is_check_due(bytes) ? check() : result<void>(); }
  // Counts a piece of work. Returns whether a check is due, which the caller then makes.
  inline bool is_check_due(std::int64_t bytes) {
    unchecked_bytes_ += bytes;
    if (++unchecked_tasks_ < 256 && unchecked_bytes_ < (std::int64_t{4} << 20)) return false;
    unchecked_bytes_ = unchecked_tasks_ = 0;
    return true;
  }

  inline void report(std::int64_t bytes) const {
    if (progress_) progress_(bytes);
  }

 private:
  std::int32_t rank_;
  std::function<void(std::int64_t bytes)> progress_;
  call_options options_;
  std::optional<stream_ref> stream_;  // none: the host's kernels, which have no stream
  std::int64_t unchecked_bytes_ = 0;
  std::int64_t unchecked_tasks_ = 0;
};

}  // namespace shardmesh
