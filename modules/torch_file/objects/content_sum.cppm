// SPDX-License-Identifier: Apache-2.0
// Not exported: a digest of pickled values, which equal values share even if they are pickled in different ways.
module shardmesh.torch_file:content_sum;

import shardmesh.std;
import shardmesh.digest;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// Hashes values one after the other. Each begins with its kind and the number of its parts, so that different values
// never give the same bytes.
class content_sum {
 public:
  void number(std::uint64_t value);
  void text(std::string_view value);
  // Adds a value without its parts.
  void leaf(const pickle::value& value);
  digest128 digest() const { return sum_.digest(); }

 private:
  xxh3_stream sum_;
};

}  // namespace shardmesh::torch_file
