// SPDX-License-Identifier: Apache-2.0
#include "json_writer.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "console.hpp"

import shardmesh;
import shardmesh.core;

namespace tool {
namespace {

[[noreturn]] void refuse_order() {
  throw std::logic_error("a JSON document was written in an order that makes none");
}

}  // namespace

json_writer::json_writer() : json_writer([](std::string text) { tool::print(std::move(text)); }) {}

void json_writer::separate() {
  if (!std::exchange(open_.back().is_empty, false)) text_ += ',';
}

// Writes the comma before a list's value, and checks that a value may come here.
void json_writer::begin_value() {
  if (text_.size() > std::size_t{1} << 20) hand_on_(std::exchange(text_, {}));
  if (open_.empty()) {
    if (std::exchange(is_done_, true)) refuse_order();
    return;
  }
  level& inner = open_.back();
  if (inner.at == place::object) refuse_order();
  if (inner.at == place::list)
    separate();
  else
    inner.at = place::object;
}

void json_writer::begin(place kind, char bracket) {
  begin_value();
  open_.push_back({kind});
  text_ += bracket;
}

void json_writer::end(place kind, char bracket) {
  if (open_.empty() || open_.back().at != kind) refuse_order();
  open_.pop_back();
  text_ += bracket;
}

json_writer& json_writer::begin_object() {
  return begin(place::object, '{'), *this;
}
json_writer& json_writer::end_object() {
  return end(place::object, '}'), *this;
}
json_writer& json_writer::begin_list() {
  return begin(place::list, '['), *this;
}
json_writer& json_writer::end_list() {
  return end(place::list, ']'), *this;
}

json_writer& json_writer::key(std::string_view name) {
  if (open_.empty() || open_.back().at != place::object) refuse_order();
  separate();
  text_ += shardmesh::json_quoted(name);
  text_ += ':';
  open_.back().at = place::member;
  return *this;
}

json_writer& json_writer::value(std::string_view text) {
  begin_value();
  text_ += shardmesh::json_quoted(text);
  return *this;
}

json_writer& json_writer::value(bool truth) {
  begin_value();
  text_ += truth ? "true" : "false";
  return *this;
}

json_writer& json_writer::null() {
  begin_value();
  text_ += "null";
  return *this;
}

json_writer& json_writer::raw(std::string_view json) {
  if (!is_json(json)) return value(json);
  begin_value();
  text_ += json;
  return *this;
}

void json_writer::finish() {
  if (!open_.empty() || !is_done_) refuse_order();
  text_ += '\n';
  hand_on_(std::exchange(text_, {}));
}

std::string json_text(const std::function<void(json_writer&)>& write) {
  std::string made;
  json_writer out([&](const std::string& text) { made += text; });
  write(out);
  out.finish();
  made.pop_back();
  return made;
}

}  // namespace tool
