// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.remote;

import :answer_sinks;
import :attempt;
import :failure;
import :client_call;
import :lost_servers;
import :ranged_read;
import :request_costs;
import :retry_pace;
import :url_text;

namespace shardmesh::remote {
namespace {

constexpr std::size_t part_bytes = 8 << 20;
constexpr std::int64_t most_second_requests = 4;  // at a time: 32 MiB of copies
constexpr int first_window = 4;
constexpr std::size_t remembered_durations = 64, least_durations = 4;

}  // namespace

std::int64_t parts_of(std::span<const http_range> ranges) {
  std::int64_t count = 0;
  for (const http_range& one : ranges)
    count += static_cast<std::int64_t>((one.out.size() + part_bytes - 1) / part_bytes);
  return count;
}

ranged_read::ranged_read(client_call& call, const http_options& options, memories known, const target& from,
                         std::span<const http_range> ranges)
    : call_(call),
      options_(options),
      costs_(known.costs),
      lost_(known.lost),
      from_(from),
      server_(origin_of(from.object.url)),
      ranges_(ranges),
      pace_(options, parts_of(ranges)),
      window_(options.connections, costs_.window(server_).value_or(first_window), clock::now()) {}

ranged_read::~ranged_read() {
  call_.end_all();
  try {
    costs_.set_window(server_, window_.size());
  } catch (const std::exception&) {  // no memory: the next call begins with an earlier window
  }
}

result<void> ranged_read::run() {
  for (;;) {
    if (call_.reached_limit() != errc::ok) return call_.end_at_limit(from_.object);
    const auto now = clock::now();
    SHARDMESH_TRY(fill(now));
    SHARDMESH_TRY(request_stragglers(now));
    if (lanes_.empty() && failed_.empty() && range_ == ranges_.size()) return {};
    const auto ended = call_.next(next_event(now));
    if (ended) SHARDMESH_TRY(on_end(ended, clock::now()));
  }
}

// Returns the next part that may begin: a failed one first.
std::optional<ranged_read::part> ranged_read::next_part(clock::time_point now) {
  const auto ready = std::find_if(failed_.begin(), failed_.end(), [&](const part& one) { return one.ready <= now; });
  if (ready != failed_.end()) {
    part made = *ready;
    failed_.erase(ready);
    return made;
  }
  while (range_ != ranges_.size() && cut_ == ranges_[range_].out.size()) {
    ++range_;
    cut_ = 0;
  }
  if (range_ == ranges_.size() || now < resume_) return std::nullopt;
  const http_range& whole = ranges_[range_];
  const std::size_t size = std::min(part_bytes, whole.out.size() - cut_);
  part made{{whole.offset + static_cast<std::int64_t>(cut_), whole.out.subspan(cut_, size)}, 0, 0, now, now};
  cut_ += size;
  return made;
}

result<void> ranged_read::fill(clock::time_point now) {
  while (static_cast<int>(lanes_.size()) < window_.size()) {
    auto next = next_part(now);
    if (!next) return {};
    lane& made = lanes_.emplace_back();
    made.work = *next;
    ++made.work.attempts;
    made.began = now;
    SHARDMESH_TRY(start(made, made.first, made.work.range.out));
  }
  return {};
}

result<void> ranged_read::start(lane& of, request& made, std::span<std::byte> out) {
  http_request sent = from_.object;
  const std::int64_t offset = of.work.range.offset;
  sent.headers.emplace_back("Range",
                            fmt::format("bytes={}-{}", offset, offset + static_cast<std::int64_t>(out.size()) - 1));
  // A weak ETag never matches in If-Match, which compares strongly.
  if (!from_.version.empty() && !from_.version.starts_with("W/")) sent.headers.emplace_back("If-Match", from_.version);
  if (from_.sign) SHARDMESH_TRY(from_.sign(sent));
  made.sink = std::make_unique<range_body>(expected_range{offset, from_.total_bytes, from_.version}, out);
  made.sent = call_.start(std::move(sent), *made.sink);
  return {};
}

result<void> ranged_read::on_end(const std::shared_ptr<attempt>& ended, clock::time_point now) {
  const auto of = std::find_if(lanes_.begin(), lanes_.end(),
                               [&](const lane& one) { return one.first.sent == ended || one.second.sent == ended; });
  if (of == lanes_.end()) return {};
  const bool is_second = of->second.sent == ended;
  request& own = is_second ? of->second : of->first;
  request& other = is_second ? of->first : of->second;
  own.sent.reset();
  if (of->winner == race::open) {
    if (const auto why = own.sink->failure_of(*ended, options_)) {
      if (other.sent) return {};  // it may succeed
      return on_failure(of, own, *ended, now, *why);
    }
    lost_.add_answer(server_);
    costs_.add(server_, ended->answered_at - ended->sent_at, static_cast<std::int64_t>(of->work.range.out.size()),
               ended->ended_at - ended->answered_at);
    of->winner = is_second ? race::second_won : race::first_won;
    if (other.sent) call_.withdraw(other.sent);
  }
  if (!other.sent) finish(of, now);
  return {};
}

// Returns whether the caller has removed the cause of a refusal.
bool ranged_read::recovers(part& work, const request& own, const attempt& ended) {
  constexpr int most_recoveries = 2;
  const int status = ended.head.status;
  const bool is_refusal = ended.end == attempt::ending::answered && status >= 300 && status < 500;
  if (!is_refusal || !ended.request.recover || work.recoveries == most_recoveries) return false;
  http_response answer = ended.head;
  const auto text = std::as_bytes(std::span(own.sink->text()));
  answer.body.assign(text.begin(), text.end());
  if (!ended.request.recover(ended.request, answer)) return false;
  ++work.recoveries;
  --work.attempts;
  return true;
}

// Precondition: no request of the lane is in flight.
void ranged_read::repeat(lanes::iterator of, clock::time_point when) {
  if (of->second.sink) --second_requests_;
  of->work.ready = when;
  failed_.push_back(of->work);
  lanes_.erase(of);
}

// Precondition: no request of the lane is in flight.
result<void> ranged_read::on_failure(lanes::iterator of, const request& own, const attempt& ended,
                                     clock::time_point now, const failure& why) {
  const part& work = of->work;
  if (why.is_final && recovers(of->work, own, ended)) {
    repeat(of, now);
    return {};
  }
  if (why.is_throttle) {
    window_.slow_down(now);
    resume_ = std::max(resume_, now + std::max(why.retry_after, std::chrono::milliseconds(100)));
  }
  const auto again = pace_.next(why, work.attempts, work.first, now);
  if (!again) {
    if (!why.is_final) lost_.add_failure(server_, call_.whole_call_began(), now, why.why);
    return last_error(why, work.attempts);
  }
  repeat(of, *again);
  return {};
}

// Precondition: no request of the lane is in flight.
void ranged_read::finish(lanes::iterator done, clock::time_point now) {
  const auto out = done->work.range.out;
  if (done->winner == race::second_won) std::memcpy(out.data(), done->copy.get(), out.size());
  if (done->second.sink) --second_requests_;
  if (durations_.size() < remembered_durations)
    durations_.push_back(now - done->began);
  else
    durations_[static_cast<std::size_t>(finished_) % remembered_durations] = now - done->began;
  ++finished_;
  window_.finished(static_cast<std::int64_t>(out.size()), now);
  lanes_.erase(done);
}

// Returns how long a part may take before it is requested a second time. Nothing until enough parts have finished.
std::optional<ranged_read::clock::duration> ranged_read::straggling_time() const {
  if (durations_.size() < least_durations) return std::nullopt;
  auto sorted = durations_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return std::max<clock::duration>(3 * *middle, std::chrono::seconds(1));
}

result<void> ranged_read::request_stragglers(clock::time_point now) {
  const auto limit = straggling_time();
  if (!limit) return {};
  for (lane& one : lanes_) {
    const bool is_straggler =
        one.first.sent && !one.second.sink && one.winner == race::open && now - one.began >= *limit;
    if (!is_straggler || second_requests_ >= most_second_requests) continue;
    const std::size_t size = one.work.range.out.size();
    one.copy.reset(new (std::nothrow) std::byte[size]);
    if (!one.copy) {
      second_requests_ = most_second_requests;  // without memory, the first requests go on alone
      return {};
    }
    ++second_requests_;
    SHARDMESH_TRY(start(one, one.second, {one.copy.get(), size}));
  }
  return {};
}

// Returns when the state changes without the end of an attempt.
ranged_read::clock::time_point ranged_read::next_event(clock::time_point now) const {
  auto next = clock::time_point::max();
  if (static_cast<int>(lanes_.size()) < window_.size()) {
    for (const part& one : failed_) next = std::min(next, one.ready);
    if (range_ != ranges_.size() && resume_ > now) next = std::min(next, resume_);
  }
  if (const auto limit = straggling_time(); limit && second_requests_ < most_second_requests)
    for (const lane& one : lanes_)
      if (one.first.sent && !one.second.sink && one.winner == race::open) next = std::min(next, one.began + *limit);
  return next;
}

}  // namespace shardmesh::remote
