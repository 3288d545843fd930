// SPDX-License-Identifier: Apache-2.0
// Not exported: the parts of which the bytes of a load share consist. Their order is in `load_share.cpp` and
// `load_share_reader.cpp`.
module shardmesh.collective_checkpoint:load_share_bytes;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh {

// The kinds of a rank's own entries, which follow the part that is the same on every rank.
enum class own_entry : std::uint8_t { in_pieces, shared, object, chunk };

// Writes or reads ascending positions as differences, which take one byte each.
class position_writer {
 public:
  explicit position_writer(detail::wire_writer& out) : out_(out) {}
  inline void add(std::size_t position) {
    out_.number(static_cast<std::int64_t>(position) - last_);
    last_ = static_cast<std::int64_t>(position);
  }

 private:
  detail::wire_writer& out_;
  std::int64_t last_ = -1;
};

class position_reader {
 public:
  position_reader(detail::wire_reader& in, std::size_t count) : in_(in), count_(static_cast<std::int64_t>(count)) {}
  // Returns `count` after malformed bytes.
  inline std::size_t next() {
    const std::int64_t step = in_.in_range(-count_, count_);
    last_ += step;
    is_ok_ = is_ok_ && in_.ok() && last_ >= 0 && last_ < count_;
    return static_cast<std::size_t>(is_ok_ ? last_ : count_);
  }
  inline bool ok() const { return is_ok_; }

 private:
  detail::wire_reader& in_;
  std::int64_t count_;
  std::int64_t last_ = -1;
  bool is_ok_ = true;
};

}  // namespace shardmesh
