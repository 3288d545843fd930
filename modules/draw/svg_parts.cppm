// SPDX-License-Identifier: Apache-2.0
// Not exported: what all SVG pictures are made of.
module shardmesh.draw:svg_parts;

import shardmesh.std;

namespace shardmesh {

// A document of that size, light or dark as its reader's system is. style: rules beside those that all pictures share.
std::string svg_document(double width, double height, const std::string& body, std::string_view style = "");

// anchor: "start", "middle" or "end". text: as `svg_text` gives it. name: its class in the style sheet.
std::string svg_text_at(double x, double y, std::string_view anchor, const std::string& text,
                        std::string_view name = "name");

// Any bytes, as text of a document: control bytes and what is not UTF-8 are spelled.
std::string svg_text(std::string_view text);

}  // namespace shardmesh
