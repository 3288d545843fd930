// SPDX-License-Identifier: Apache-2.0
// A text that a C function returns to Python. Include before imports.
#pragma once
#include <string>
#include <utility>

/// The text, valid until the next call of this thread.
inline const char* kept(std::string text) {
  thread_local std::string last;
  last = std::move(text);
  return last.c_str();
}
