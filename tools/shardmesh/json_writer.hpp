// SPDX-License-Identifier: Apache-2.0
// `json_writer`: one JSON document, written as it grows. Every document of the command line goes through it, so that
// none can lack a value, a comma, or a bracket. It keeps no tree in memory: a document lists millions of chunks. Names
// that are not UTF-8 are written as in `json_quoted`; no JSON library that we know offers this.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {

/// Whether `text` is exactly one JSON value (RFC 8259), with at most white space around it.
bool is_json(std::string_view text);

class json_writer {
 public:
  /// Writes to stdout, or to the document of `console.hpp`.
  json_writer();
  explicit json_writer(std::function<void(std::string)> hand_on) : hand_on_(std::move(hand_on)) {}

  json_writer& begin_object();
  json_writer& end_object();
  json_writer& begin_list();
  json_writer& end_list();
  /// Sets the name of the next value of an object.
  json_writer& key(std::string_view name);

  json_writer& value(std::string_view text);
  json_writer& value(const std::string& text) { return value(std::string_view(text)); }
  json_writer& value(const char* text) { return value(std::string_view(text)); }
  json_writer& value(bool truth);
  template <std::integral Number>
    requires(!std::same_as<Number, bool>)
  json_writer& value(Number number) {
    begin_value();
    text_ += std::to_string(number);
    return *this;
  }
  json_writer& null();
  /// Writes a value that is JSON already. Text that is not JSON is a bug in the caller, and is written as a string.
  json_writer& raw(std::string_view json);
  /// Writes a list of numbers or texts.
  template <class Range>
  json_writer& list(const Range& values) {
    begin_list();
    for (const auto& one : values) value(one);
    return end_list();
  }

  template <class Value>
  json_writer& member(std::string_view name, const Value& of) {
    return key(name).value(of);
  }

  /// Ends the document with a line break and passes on the rest. Every object and list must have ended.
  void finish();

 private:
  enum class place : std::uint8_t { list, object, member };  // member: after a key, before its value
  struct level {
    place at;
    bool is_empty = true;
  };

  void begin_value();
  void begin(place kind, char bracket);
  void end(place kind, char bracket);
  void separate();

  std::string text_;
  std::vector<level> open_;
  bool is_done_ = false;  // whether the one value of the document was written
  std::function<void(std::string)> hand_on_;
};

/// Returns the document that `write` makes, without a line break at its end.
std::string json_text(const std::function<void(json_writer&)>& write);

}  // namespace tool
