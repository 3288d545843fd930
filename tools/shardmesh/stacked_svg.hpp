// SPDX-License-Identifier: Apache-2.0
// Several SVG pictures as one. The caller makes the pictures.
#pragma once
#include <string>
#include <vector>

namespace tool {

struct captioned_picture {
  std::string caption;  // any bytes
  std::string svg;      // a complete document of this library, with width and height
};

/// Makes one SVG document: the pictures below one another, each with its caption above it, and `last` at the bottom.
std::string stacked_svg(const std::vector<captioned_picture>& pictures, const std::string& last);

}  // namespace tool
