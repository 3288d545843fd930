// SPDX-License-Identifier: Apache-2.0
// Not exported: the search for overlaps and gaps among boxes, and the list of the defects found.
module shardmesh.layout:cover_defects;

import shardmesh.std;
import shardmesh.core;
import :box_arrays;
import :cover;
import :distribution;

namespace shardmesh {

class cover_report_writer {
 public:
  cover_report_writer(std::size_t max_problems, owner_space space) : max_(max_problems), space_(space) {}
  inline std::size_t room() const { return max_ - std::min(max_, report.problems.size()); }
  inline void add(cover_problem problem) {
    ++report.total;
    problem.space = space_;
    if (room() > 0) report.problems.push_back(std::move(problem));
  }
  inline void count(std::int64_t more) { report.total += more; }
  // Drops all but the first `kept` problems. Precondition: every counted problem after them is also listed.
  inline void forget(std::size_t kept) {
    report.total -= static_cast<std::int64_t>(report.problems.size() - kept);
    report.problems.resize(kept);
  }
  cover_report report;

 private:
  std::size_t max_;
  owner_space space_;
};

// Reports the overlaps and gaps of boxes in a region that is known not to hold every cell exactly once. `members`: the
// boxes, not empty and inside the region; ascending.
void report_defects(const box_arrays& b, const box& whole, const box_indices& members, cover_report_writer& out);

// Reports only overlaps.
void report_overlaps(const box_arrays& b, const box& whole, const box_indices& members, cover_report_writer& out);

}  // namespace shardmesh
