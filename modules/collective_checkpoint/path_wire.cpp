// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <string>
module shardmesh.collective_checkpoint;

import :path_wire;

namespace shardmesh {

void write(detail::wire_writer& out, const path& value) {
  out.number(static_cast<std::int64_t>(value.size()));
  for (const path_key& key : value) {
    out.flag(!key.is_index());
    if (key.is_index()) {
      out.number(key.index());
      continue;
    }
    out.flag(key.is_integer());
    if (key.is_integer()) {
      out.number(key.integer());
      continue;
    }
    out.text(key.name());
    out.flag(key.is_python());
    if (key.is_python()) out.text(key.pickled());
  }
}

path read_path(detail::wire_reader& in) {
  path made;
  const std::size_t keys = in.count();
  for (std::size_t i = 0; i < keys && in.ok(); ++i) {
    if (!in.flag())
      made.push_back(in.number());
    else if (in.flag())
      made.push_back(path_key::of_integer(in.number()));
    else {
      const std::string name = in.text();
      made.push_back(in.flag() ? path_key::of_python(name, in.text()) : path_key(name));
    }
  }
  return in.ok() ? made : path();
}

}  // namespace shardmesh
