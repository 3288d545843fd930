// SPDX-License-Identifier: Apache-2.0
// time_limit: the time at which a call must end, given as a duration or as a time point.
export module shardmesh.core:time_limit;

import shardmesh.std;

export namespace shardmesh {

/// The time at which a call must end; by default, there is none. The option `within` of every long call has this type:
/// `{.within = 30s}`, or `{.within = when}` with a time point of std::chrono::steady_clock.
class time_limit {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Constructs no limit.
  time_limit() noexcept = default;
  time_limit(std::nullopt_t) noexcept {}              // NOLINT: implicit, so that options take it
  time_limit(time_point end) noexcept : end_(end) {}  // NOLINT: implicit
  /// Counts from this construction: calls that share the limit share the time. A negative duration has passed. A
  /// duration beyond the clock's range, such as std::chrono::hours::max(), gives the clock's last time.
  template <class Rep, class Period>
  time_limit(const std::chrono::duration<Rep, Period>& length) : end_(end_after(ticks(length))) {}  // NOLINT: implicit

  /// Returns whether there is a limit.
  explicit operator bool() const noexcept { return end_.has_value(); }
  /// Returns the end. Precondition: there is a limit.
  const time_point& operator*() const noexcept { return *end_; }

  friend bool operator==(const time_limit&, const time_limit&) = default;

 private:
  // Every integer duration of the clock is exact in `long double`, and no longer duration overflows it.
  using ticks = std::chrono::duration<long double, std::chrono::steady_clock::period>;
  static time_point end_after(ticks length) noexcept;

  std::optional<time_point> end_;
};

}  // namespace shardmesh
