// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: searches any bytes for names. Where the strict parser accepts a pickle, the lenient one reads it to
// the same end. Names are short, whatever the input.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

import shardmesh.checkpoint;
import shardmesh.pickle;

namespace {

// "<unreadable from byte 60>". A module may be called "<unreadable", but a name has a dot after its module.
bool is_end_of_reading(std::string_view name) {
  return name.starts_with("<unreadable from byte ") && name.ends_with('>') && name.find('.') == name.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardmesh;
  const auto bytes = std::as_bytes(std::span(data, size));
  const pickle::used_names found = pickle::names_in(bytes);
  for (const pickle::used_name& name : found.names)
    if (name.text.empty() || name.text.size() > 1000 || name.count < 1) std::abort();
  const auto graph = pickle::graph::parse(bytes);
  if (graph && graph->consumed_bytes() == size)
    for (const pickle::used_name& name : found.names)
      if (is_end_of_reading(name.text)) std::abort();
  return 0;
}
