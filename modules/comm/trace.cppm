// SPDX-License-Identifier: Apache-2.0
// trace_ring: the latest calls of a rank, kept in a fixed amount of memory, so that an error can say what the other
// ranks were doing. The communicators record the calls.
export module shardmesh.comm:trace;

import shardmesh.std;

export namespace shardmesh {

/// One call of a rank on its communicator.
struct trace_event {
  const char* call = "";  // a string literal: "all_gather", "exchange", "lending"
  std::uint32_t tag = 0;
  std::int32_t peers = 0;  // messages in both directions
  std::int64_t size_bytes = 0;
  std::chrono::steady_clock::time_point began{}, ended{};
  bool is_over = false;
  const char* of = "";  // the operation that the call is part of: `call_options::name`
};

/// The last `capacity` events. Not synchronised.
class trace_ring {
 public:
  static constexpr std::size_t capacity = 32;

  /// Records the begin of a call and returns its number, for `end`.
  std::uint64_t begin(const char* call, std::uint32_t tag, std::int32_t peers, std::int64_t size_bytes,
                      const char* of = "");
  /// Records the end of a call, unless the call has already left the ring.
  void end(std::uint64_t number);

  /// Returns the number of events ever begun.
  std::uint64_t count() const { return next_; }
  /// Returns event `number`. Precondition: it is among the last `capacity` events.
  const trace_event& operator[](std::uint64_t number) const { return events_[number % capacity]; }

  /// Describes the current state: "in all_gather for 120 ms", "in all_gather of save for 2 s", "has made no call",
  /// "idle for 3 s after exchange (tag 7, 2 messages, 4.0 KiB)".
  std::string now() const;
  /// Describes the events in the ring, oldest first: "all_gather 0.1 ms, exchange (..) 3 ms, ...".
  std::string history() const;

 private:
  std::array<trace_event, capacity> events_{};
  std::uint64_t next_ = 0;
};

}  // namespace shardmesh

// Exported for the optional transports.
export namespace shardmesh::detail {

// Formats "all_gather of save", or "all_gather" when the call has no name (`call_options::name`).
std::string part_of_call(std::string_view part, std::string_view call);

}  // namespace shardmesh::detail
