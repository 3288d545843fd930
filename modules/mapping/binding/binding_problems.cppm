// SPDX-License-Identifier: Apache-2.0
// Not exported: binding_problems, the problems of a mapping that is bound to a checkpoint.
module shardmesh.mapping:binding_problems;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// A list of problems, each of which names a file.
class binding_problems {
 public:
  // `file`: of the mapping; it becomes the file of problems that name none.
  explicit binding_problems(std::string file) : file_(std::move(file)) {}

  // Names the mapping's file in an error that names no file.
  error located(error e) const;
  void add(error e);
  // Returns whether one more problem still gets a hint that is costly to find.
  bool may_suggest() const;
  // Returns whether the mapping has so many problems that it is for another model, or that its ranges are wrong.
  bool are_too_many() const;
  bool empty() const { return problems_.empty(); }
  // Returns one error with all problems. Ends the collection. Precondition: there is one.
  error take() &&;

 private:
  std::string file_;
  detail::problem_list problems_;
};

}  // namespace shardmesh
