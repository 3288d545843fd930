// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
module shardmesh.remote;

import :failure;
import :retry_pace;

namespace shardmesh::remote {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds first_delay{100}, longest_delay{5'000};

// The generator "splitmix64": no state beyond one number.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace

retry_pace::retry_pace(const http_options& options, std::int64_t requests)
    : options_(options),
      left_(4 * std::int64_t{std::max(options.attempts, 1)} + requests / 4),
      random_(std::random_device{}()) {}

std::optional<retry_pace::time_point> retry_pace::next(const failure& last, int attempts_made, time_point first,
                                                       time_point now) {
  if (attempts_made >= last.attempts || left_ <= 0) return std::nullopt;
  // Full jitter: clients that failed together do not return together.
  const int doublings = std::clamp(attempts_made - 1, 0, 10);
  const std::int64_t most = std::min(longest_delay.count(), first_delay.count() << doublings);
  milliseconds delay(static_cast<std::int64_t>(next_random(random_) % static_cast<std::uint64_t>(most + 1)));
  delay = std::max(delay, last.retry_after);
  if (now + delay - first >= options_.total) return std::nullopt;
  --left_;
  return now + delay;
}

request_window::request_window(int most, int first, time_point now)
    : most_(std::max(most, 1)), size_(std::clamp(first, 1, most_)), since_(now) {}

void request_window::begin_period(time_point now) {
  count_ = 0;
  bytes_ = 0;
  since_ = now;
}

void request_window::finished(std::int64_t bytes, time_point now) {
  bytes_ += bytes;
  if (++count_ < size_) return;
  const double seconds = std::max(std::chrono::duration<double>(now - since_).count(), 1e-6);
  const double rate = static_cast<double>(bytes_) / seconds;
  if (rate > 1.1 * best_) {
    best_ = rate;
    size_ = std::min(most_, doubles_ ? 2 * size_ : size_ + 1);
  }
  begin_period(now);
}

void request_window::slow_down(time_point now) {
  if (halved_ && now - *halved_ < std::chrono::seconds(1)) return;
  halved_ = now;
  size_ = std::max(1, size_ / 2);
  doubles_ = false;
  best_ = 0;
  begin_period(now);
}

}  // namespace shardmesh::remote
