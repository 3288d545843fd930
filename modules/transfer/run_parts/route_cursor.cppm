// SPDX-License-Identifier: Apache-2.0
// A place on a route: a batch, and one of its two rounds of messages. A run stands at one place at a time; the tables
// of a backend are prepared for all of them. The work at a place is in `host_worker` and `batch_worker`. Exports
// nothing.
module shardmesh.transfer:route_cursor;

import shardmesh.std;
import :route;

namespace shardmesh {

enum class round_kind : std::uint8_t { gather, deliver };

class route_cursor {
 public:
  // The route must outlive the cursor.
  inline explicit route_cursor(const route& r, std::size_t batch = 0, round_kind kind = round_kind::gather)
      : route_(&r), batch_(batch), kind_(kind) {}

  inline bool is_at_end() const { return batch_ == route_->batches.size(); }
  // The number of the batch.
  inline std::size_t index() const { return batch_; }

  // Precondition of the rest: not at the end.
  inline const batch_route& batch() const { return route_->batches[batch_]; }
  inline const message_round& round() const { return is_delivering() ? batch().deliver : batch().gather; }
  // Whether this is the batch's second round. From there on, its staging holds rounded results instead of sums.
  inline bool is_delivering() const { return kind_ == round_kind::deliver; }

  // Goes to the deliver round of this batch, or to the gather round of the next batch.
  inline void next_round() {
    if (is_delivering()) ++batch_;
    kind_ = is_delivering() ? round_kind::gather : round_kind::deliver;
  }

 private:
  const route* route_;
  std::size_t batch_;
  round_kind kind_;
};

}  // namespace shardmesh
