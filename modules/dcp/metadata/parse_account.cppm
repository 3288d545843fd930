// SPDX-License-Identifier: Apache-2.0
// Not exported: collects the problems, and counts the cost, of parsing one `.metadata`.
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
  /// Counts the cost of an object before it is built for `key`. Returns false once the limit is exceeded; nothing more
  /// is read then.
  inline bool spend(std::size_t bytes, std::string_view key) {
    if (refusal_) return false;
    if (auto done = budget_.build(static_cast<std::int64_t>(bytes)); !done) refuse(std::move(done).error(), key);
    return !refusal_;
  }
  /// Returns why reading stopped: a limit was exceeded.
  const std::optional<error>& refusal() const { return refusal_; }
  /// Returns an attribute. The search visits the object's attributes, so its cost is counted for large objects.
  inline pickle::value field(const pickle::value& object, std::string_view attribute) {
    const pickle::value state = object.state();
    if (state.size() > 16 && !spend(8 * state.size(), {})) return {};
    return object.attribute(attribute);
  }

  /// Records a problem, with the file. The first ones are kept, the others counted.
  void problem(error e, std::string_view key);
  /// Does the same; the caller may complete the returned error.
  error& problem(errc code, std::string message, std::string_view key);
  std::vector<error> take_problems() &&;

 private:
  error& add(error e, std::string_view key);
  void refuse(error e, std::string_view key);

  std::string_view file_;
  read_budget& budget_;
  std::optional<error> refusal_;
  std::vector<error> problems_;
  std::int64_t unnamed_ = 0;  // number of problems beyond those that are kept
  error spare_;               // the last of these
};

}  // namespace shardmesh::dcp
