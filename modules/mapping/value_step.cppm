// SPDX-License-Identifier: Apache-2.0
// Operations on the values of a tensor: a norm's weight that is stored as 1 + w, or a decay that is stored as a
// logarithm.
export module shardmesh.mapping:value_step;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// One operation on each element, computed in float64 and rounded to the tensor's dtype.
struct value_step {
  enum class operation : std::uint8_t { add, multiply, divide, negate, exponential, logarithm };
  operation what = operation::add;
  double constant = 0;  // of add, multiply, and divide
  friend bool operator==(const value_step&, const value_step&) = default;
};

/// Parses "x + 1", "x - 1", "x * 0.5", "x / 8", "-x", "exp(x)", or "log(x)".
/// \errors errc::invalid_argument, also for a constant that is not finite, and for a multiplication or division by 0
result<value_step> parse_value_step(std::string_view text);
std::string to_string(const value_step& step);

/// Returns the operation that undoes this one, up to rounding.
value_step inverse_of(const value_step& step);

}  // namespace shardmesh

namespace shardmesh {

// Applies the steps to the elements of a row-major view in host memory.
// \errors errc::unsupported for a dtype that is not floating; errc::invalid_argument for an element that is finite
//         before the steps and not after them, with its box in `elements`
result<void> apply_steps(std::span<const value_step> steps, const tensor_view& elements);

}  // namespace shardmesh
