// SPDX-License-Identifier: Apache-2.0
// Not exported: what parsing one `.metadata` has found wrong and what it has cost.
module shardmesh.dcp:parse_account;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;

namespace shardmesh::dcp {

class parse_account {
 public:
  /// `file` is for messages.
  parse_account(std::string_view file, read_budget& budget) : file_(file), budget_(budget) {}

  std::string_view file() const { return file_; }
  /// Counts what is about to be built for `key`; false beyond the limit, from where on nothing is read.
  inline bool spend(std::size_t bytes, std::string_view key) {
    if (refusal_) return false;
    if (auto done = budget_.build(static_cast<std::int64_t>(bytes)); !done) refuse(std::move(done).error(), key);
    return !refusal_;
  }
  /// Why nothing more is read: a limit was met.
  const std::optional<error>& refusal() const { return refusal_; }
  /// An attribute; looking for it costs as much as the object has.
  inline pickle::value field(const pickle::value& object, std::string_view attribute) {
    const pickle::value state = object.state();
    if (state.size() > 16 && !spend(8 * state.size(), {})) return {};
    return object.attribute(attribute);
  }

  /// Notes a problem, with the file. The first ones are kept, the others counted.
  void problem(error e, std::string_view key);
  /// The same; the result may be completed.
  error& problem(errc code, std::string message, std::string_view key);
  std::vector<error> take_problems() &&;

 private:
  error& add(error e, std::string_view key);
  void refuse(error e, std::string_view key);

  std::string_view file_;
  read_budget& budget_;
  std::optional<error> refusal_;
  std::vector<error> problems_;
  std::int64_t unnamed_ = 0;  // beyond those that are kept
  error spare_;               // the last of them
};

}  // namespace shardmesh::dcp
