// SPDX-License-Identifier: Apache-2.0
// call_guard: the checks of every transport before it starts a call, and the errors of calls that a cancellation or a
// deadline ends. Work without peers uses core's call_limits.
export module shardmesh.comm:call_guard;

import shardmesh.std;
import shardmesh.core;

// Exported for the optional transports.
export namespace shardmesh::detail {

// One rank's call, as errors name it: "an exchange of save (tag 3)". The texts must outlive it.
struct call_identity {
  std::int32_t rank = 0;
  std::string_view part = "an exchange";
  std::string_view name{};  // `call_options::name`; may be empty
  std::uint32_t tag = 0;
};

// Whether a transport orders calls on device streams.
enum class stream_policy { refused, taken };

// Begins a call, and returns its limits. Every transport calls it first.
// `poison` is the error that poisoned the transport. `set_poison` must set it: to its argument, or to an earlier error
// of another rank.
// \errors `poison`; errc::unsupported for a stream that is refused, which poisons nothing; errc::cancelled and
//         errc::deadline_exceeded, which poison
// Cost: a valid call allocates nothing, and reads the clock only if it has a deadline.
result<call_limits> begin_call(const call_identity& call, const call_options& options, stream_policy streams,
                               const std::optional<error>& poison, function_ref<void(error)> set_poison);

// Makes the error of a call that reached the limit `ended` between two pieces of this rank's own work.
error ended_within(const call_identity& call, errc ended);

// Makes the error of a call that reached the limit `ended` while it waited: for messages from `senders`, and for
// `takers` to take this rank's messages. If both lists are empty, the peers are unknown. A deadline's error names the
// operation, the peers (also in `error::ranks`), the tag, and the time since the call began.
error ended_wait(const call_identity& call, const call_limits& limits, errc ended,
                 std::vector<std::int32_t> senders = {}, std::vector<std::int32_t> takers = {});

}  // namespace shardmesh::detail
