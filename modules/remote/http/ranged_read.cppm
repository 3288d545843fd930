// SPDX-License-Identifier: Apache-2.0
// ranged_read: one call of `http_client::read`. It cuts ranges into parts, keeps a window of them in flight, repeats
// failed ones, and requests stragglers twice. Internal to `remote`.
module shardmesh.remote:ranged_read;

import shardmesh.std;
import shardmesh.core;
import :answer_sinks;
import :attempt;
import :failure;
import :client_call;
import :http_client;
import :lost_servers;
import :request_costs;
import :retry_pace;

namespace shardmesh::remote {

class ranged_read {
 public:
  using clock = client_call::clock;

  // The object of a read: the arguments of `http_client::read`.
  struct target {
    const http_request& object;
    const http_signer& sign;
    const std::string& version;
    std::int64_t total_bytes;
  };

  // The client's records about its servers.
  struct memories {
    request_costs& costs;
    lost_servers& lost;
  };

  ranged_read(client_call& call, const http_options& options, memories known, const target& from,
              std::span<const http_range> ranges);
  // Ends all attempts.
  ~ranged_read();
  ranged_read(const ranged_read&) = delete;
  ranged_read& operator=(const ranged_read&) = delete;
  result<void> run();

 private:
  struct part {
    http_range range;
    int attempts = 0, recoveries = 0;
    clock::time_point first{}, ready{};  // the first attempt; the time before which the next one must not begin
  };
  // A request of a part.
  struct request {
    std::shared_ptr<attempt> sent;  // null when there is none, or when it has ended
    std::unique_ptr<range_body> sink;
  };
  enum class race { open, first_won, second_won };
  // A part in flight. Its first request writes to the caller's memory. The second one, of a straggler, writes to
  // `copy`, which replaces the part's memory only when the first one has ended.
  struct lane {
    part work;
    request first, second;
    std::unique_ptr<std::byte[]> copy;
    clock::time_point began{};
    race winner = race::open;
  };
  using lanes = std::list<lane>;

  result<void> fill(clock::time_point now);
  std::optional<part> next_part(clock::time_point now);
  result<void> start(lane& of, request& made, std::span<std::byte> out);
  result<void> on_end(const std::shared_ptr<attempt>& ended, clock::time_point now);
  result<void> on_failure(lanes::iterator of, const request& own, const attempt& ended, clock::time_point now,
                          const failure& why);
  static bool recovers(part& work, const request& own, const attempt& ended);
  void repeat(lanes::iterator of, clock::time_point when);
  void finish(lanes::iterator done, clock::time_point now);
  result<void> request_stragglers(clock::time_point now);
  std::optional<clock::duration> straggling_time() const;
  clock::time_point next_event(clock::time_point now) const;

  client_call& call_;
  const http_options& options_;
  request_costs& costs_;
  lost_servers& lost_;
  const target from_;
  const std::string server_;
  std::span<const http_range> ranges_;
  std::size_t range_ = 0;   // the next part is in ranges_[range_],
  std::size_t cut_ = 0;     // at this place
  std::list<part> failed_;  // parts that wait for their next attempt
  lanes lanes_;
  retry_pace pace_;
  request_window window_;
  clock::time_point resume_{};  // no new part begins before: the server asked for fewer requests
  std::vector<clock::duration> durations_;
  std::int64_t finished_ = 0, second_requests_ = 0;
};

// Returns the number of parts into which ranges are cut.
std::int64_t parts_of(std::span<const http_range> ranges);

}  // namespace shardmesh::remote
