// SPDX-License-Identifier: Apache-2.0
// Cuts an exchange into rounds, so that only a little of its memory is in use at a time. Every rank makes the same cuts
// without communicating, from the transfers and the boxes of steps alone. The number of rounds is chosen in `executor`;
// the work is in `route`. Exports nothing.
module shardmesh.transfer:schedule;

import shardmesh.std;
import shardmesh.core;
import :rank_plan;

namespace shardmesh {

// A clock over all transfers of a plan. The duration of a transfer is the size of its whole tensor in bytes. Rounds are
// equal intervals of the clock, and each moves the data of its interval.
struct plan_clock {
  struct time {
    long double begin = 0, length = 0;  // in bytes of the tensors
    std::int64_t cut_bits = 8;          // bits of an element in the larger of the two dtypes
    std::int64_t wire_bits = 8, term_bits = 8, sum_bits = 8;
    bool one_space = true;
  };
  std::vector<time> transfers;
  long double length = 0;
  std::int64_t memory_bytes = 0;  // as in plan_options
  std::int64_t grain_bytes = 0;   // pieces of at most this size are not cut
};

inline constexpr std::int64_t most_rounds = std::int64_t{1} << 16;

struct round_range {
  std::int64_t first = 0, last = 0;  // half-open
};

// A plan cut into a number of rounds, which is a power of two. Doubling the number splits each round in two, so more
// rounds never take more memory.
class schedule {
 public:
  schedule(std::shared_ptr<const plan_clock> clock, std::int64_t rounds) : clock_(std::move(clock)), rounds_(rounds) {}

  std::int64_t rounds() const { return rounds_; }
  // The rounds in which a transfer moves: one or more.
  round_range rounds_of(std::size_t transfer) const;
  // Visits the parts of a step's box that move in one round: up to 2 * rank - 1 boxes, in row-major order.
  void parts(std::size_t transfer, const box& where, std::int64_t round, function_ref<void(const box&)> visit) const;
  // Visits the parts of all rounds in which some of the box moves, in ascending order. Cost: O(parts * log rounds) for
  // a box of few parts.
  void each_part(std::size_t transfer, const box& where,
                 function_ref<void(std::int64_t round, const box&)> visit) const;

 private:
  struct cut;
  cut cut_of(std::size_t transfer, const box& where) const;
  std::int64_t position(std::size_t transfer, const cut& c, std::int64_t round) const;

  std::shared_ptr<const plan_clock> clock_;
  std::int64_t rounds_;
};

// The most bytes of messages and staging that are alive on an owner at one time. `messages` is false if ranks read each
// other's memory; then only staging counts.
std::int64_t peak_of(const rank_plan& plan, const schedule& rounds, bool messages);

// The fewest rounds that keep the owner within its budget, or nothing if the finest cut exceeds it. `needed_bytes` is
// the peak of those rounds, or of the finest cut.
struct round_choice {
  std::optional<std::int64_t> rounds;
  std::int64_t needed_bytes = 0;
};
round_choice choose_rounds(const rank_plan& plan, bool messages);

}  // namespace shardmesh
