// SPDX-License-Identifier: Apache-2.0
// The files of tools/shardmesh/page, as of the build.
#pragma once
#include <span>
#include <string_view>

namespace tool {

struct page_part {
  std::string_view name, text;
};

std::span<const page_part> page_parts();

}  // namespace tool
