// SPDX-License-Identifier: Apache-2.0
// Pages of --html: one file that needs nothing else and contains the document that --json prints, or its beginning
// where that is too large for a browser. The document's contents are in COMMAND_json.cpp, its display is in page/, and
// writing it is in output_file.hpp.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace tool {

/// Makes an HTML page about `title`, any bytes, that shows `document` with these scripts of page/, in this order.
///
/// Nothing in either can become markup or a script. The title is escaped. A "<" in the document is written as \u003c;
/// it occurs only in strings, so the document stays the same. The page's policy allows only our scripts, by their
/// digests, and no request.
std::string make_page(std::string_view title, std::initializer_list<std::string_view> scripts,
                      std::string_view document);

}  // namespace tool
