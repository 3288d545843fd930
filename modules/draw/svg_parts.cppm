// SPDX-License-Identifier: Apache-2.0
// Not exported: the elements that all SVG pictures share.
module shardmesh.draw:svg_parts;

import shardmesh.std;

namespace shardmesh {

// Returns an SVG document of this size. Its colours are light or dark, as the viewer's system prefers. `style`: CSS
// rules in addition to the shared ones.
std::string svg_document(double width, double height, const std::string& body, std::string_view style = "");

// Returns a text element. `anchor`: "start", "middle" or "end". `text`: from `svg_text`. `name`: the element's class in
// the style sheet.
std::string svg_text_at(double x, double y, std::string_view anchor, const std::string& text,
                        std::string_view name = "name");

// Converts any bytes to text for a document; control bytes and invalid UTF-8 are escaped.
std::string svg_text(std::string_view text);

}  // namespace shardmesh
