// SPDX-License-Identifier: Apache-2.0
#include "element_type.hpp"

#include <fmt/format.h>

#include <string>

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;

namespace tool {
using namespace shardmesh;

result<dtype> element_type(const std::string& given) {
  const auto type = parse_dtype(given);
  if (type) return *type;
  const auto near = nearest_dtype(given);
  return fail(errc::invalid_argument, "'" + given + "' is not a dtype")
      .with_hint(near ? fmt::format("did you mean {}?", name(*near))
                      : "use PyTorch's name of a dtype, such as bfloat16");
}

}  // namespace tool
