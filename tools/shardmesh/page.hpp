// SPDX-License-Identifier: Apache-2.0
// Pages of --html: one file that needs nothing else, with the very document that --json prints in it.
// Not here: what is in the document (inspect_json.cpp, plan_json.cpp), how it is shown (page/), where it is written
// (output_file.hpp).
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace tool {

/// An HTML page about `title`, any bytes, that shows `document` with these scripts of page/, in this order.
///
/// Nothing in either can become markup or a script: the title is escaped, a "<" in the document is spelled \u003c (it
/// stands in strings only, so the document is the same), and the page's policy allows no script but ours, by its
/// digest, and no request.
std::string make_page(std::string_view title, std::initializer_list<std::string_view> scripts,
                      std::string_view document);

}  // namespace tool
