// SPDX-License-Identifier: Apache-2.0
// Output of any length without keeping it in memory: it is handed on as it grows, and at its end by `flush`.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "console.hpp"

namespace tool {

class out_buffer {
 public:
  /// Writes to stdout, or to the document.
  out_buffer() : hand_on_([](std::string text) { tool::print(std::move(text)); }) {}
  explicit out_buffer(std::function<void(std::string)> hand_on) : hand_on_(std::move(hand_on)) {}

  template <class... Values>
  void print(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    if (text_.size() > 1 << 20) flush();
  }

  void flush() { hand_on_(std::exchange(text_, {})); }

 private:
  std::string text_;
  std::function<void(std::string)> hand_on_;
};

}  // namespace tool
