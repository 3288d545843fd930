// SPDX-License-Identifier: Apache-2.0
// Several SVG pictures as one. Not here: what is in them.
#pragma once
#include <string>
#include <vector>

namespace tool {

struct captioned_picture {
  std::string caption;  // any bytes
  std::string svg;      // a whole document of this library, with its width and height
};

/// One SVG document: the pictures below one another, each with its caption above it, and `last` below all of them.
std::string stacked_svg(const std::vector<captioned_picture>& pictures, const std::string& last);

}  // namespace tool
