// SPDX-License-Identifier: Apache-2.0
#include "error.hpp"

#include <array>
#include <iterator>
#include <string_view>

#include "../bindings/code_names.hpp"
#include "values.hpp"

import shardmesh;

namespace {

static_assert(SHARDMESH_INVALID_ARGUMENT == static_cast<int>(shardmesh::errc::invalid_argument));
static_assert(SHARDMESH_NO_MEMORY == static_cast<int>(shardmesh::errc::no_memory));
static_assert(SHARDMESH_UNSUPPORTED == static_cast<int>(shardmesh::errc::unsupported));
static_assert(SHARDMESH_IO == static_cast<int>(shardmesh::errc::io));
static_assert(SHARDMESH_COMMUNICATION == static_cast<int>(shardmesh::errc::communication));

// Returned if there is no memory for another error. It is never freed.
shardmesh_error& out_of_memory() {
  static shardmesh_error kept;
  return kept;
}
constexpr const char* out_of_memory_text = "there is not enough memory";

shardmesh_text view(const std::string& text) {
  return {text.c_str(), text.size()};
}

}  // namespace

shardmesh_error::shardmesh_error(shardmesh_status code, const shardmesh::error& e)
    : status(code), fields(e), text(to_string(e)) {
  boxes.reserve(e.boxes.size());
  for (const shardmesh::box& b : e.boxes) boxes.push_back(c_api::to_c(b));
}

// Destroys a list of any length without recursion.
shardmesh_error::~shardmesh_error() {
  while (next) next = std::move(next->next);
}

namespace c_api {

std::unique_ptr<shardmesh_error> list_of(const std::vector<shardmesh::error>& errors) {
  std::unique_ptr<shardmesh_error> first;
  std::unique_ptr<shardmesh_error>* end = &first;
  for (const shardmesh::error& e : errors) {
    *end = std::make_unique<shardmesh_error>(static_cast<shardmesh_status>(e.code), e);
    end = &(*end)->next;
  }
  return first;
}

void refuse(const shardmesh::error& problem) {
  throw refusal{problem.problems()};
}

void refuse_argument(std::string_view name, std::string_view why) {
  refuse(
      shardmesh::fail(shardmesh::errc::invalid_argument, "the argument " + std::string(name) + " " + std::string(why)));
}

void refuse_null(std::string_view name) {
  refuse_argument(name, "is null");
}

void refuse_unknown_field(std::string_view name) {
  refuse_argument(name, "sets a field that this version of the library does not know");
}

void check_index(std::size_t index, std::size_t count, std::string_view what) {
  if (index < count) return;
  refuse(shardmesh::fail(shardmesh::errc::out_of_bounds, "there is no such " + std::string(what))
             .with_values("a number below " + std::to_string(count), std::to_string(index)));
}

namespace {

shardmesh_status give_list(shardmesh_error** error, const std::vector<shardmesh::error>& problems) {
  const auto status = static_cast<shardmesh_status>(problems.front().code);
  if (error != nullptr) *error = list_of(problems).release();
  return status;
}

shardmesh_status give_defect(shardmesh_error** error, const char* what) {
  const shardmesh::error told = shardmesh::fail(shardmesh::errc::unsupported, std::string("shardmesh failed: ") + what);
  if (error != nullptr) *error = std::make_unique<shardmesh_error>(SHARDMESH_INTERNAL, told).release();
  return SHARDMESH_INTERNAL;
}

shardmesh_status rethrown(shardmesh_error** error) {
  try {
    throw;
  } catch (const refusal& e) {
    return give_list(error, e.problems);
  } catch (const shardmesh::exception& e) {
    return give_list(error, e.error().problems());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return give_defect(error, e.what());
  } catch (...) {
    return give_defect(error, "an exception of an unknown kind");
  }
}

}  // namespace

shardmesh_status report_exception(shardmesh_error** error) noexcept {
  try {
    return rethrown(error);
  } catch (...) {  // no memory, perhaps while making the error
    if (error != nullptr) *error = &out_of_memory();
    return SHARDMESH_NO_MEMORY;
  }
}

}  // namespace c_api

extern "C" {

const char* shardmesh_status_name(shardmesh_status status) {
  if (status == SHARDMESH_INTERNAL) return "internal";
  return status < 0 || status >= static_cast<shardmesh_status>(bindings::code_names.size())
             ? "unknown"
             : bindings::code_names[static_cast<std::size_t>(status)];
}

shardmesh_status shardmesh_error_status(const shardmesh_error* error) {
  if (error == nullptr) return SHARDMESH_OK;
  return error == &out_of_memory() ? SHARDMESH_NO_MEMORY : error->status;
}

const char* shardmesh_error_text(const shardmesh_error* error) {
  if (error == nullptr) return "";
  return error == &out_of_memory() ? out_of_memory_text : error->text.c_str();
}

shardmesh_status shardmesh_error_describe(const shardmesh_error* error, shardmesh_error_fields* fields) {
  return c_api::guarded(nullptr, [&] {
    const shardmesh_error& from = c_api::needed(error, "error");
    shardmesh_error_fields made{};
    made.message = view(from.fields.message);
    if (error == &out_of_memory()) made.message = {out_of_memory_text, std::string_view(out_of_memory_text).size()};
    made.key = view(from.fields.key);
    made.path = view(from.fields.file);
    made.expected = view(from.fields.expected);
    made.found = view(from.fields.found);
    made.hint = view(from.fields.hint);
    made.ranks = from.fields.ranks.data();
    made.rank_count = from.fields.ranks.size();
    made.boxes = from.boxes.data();
    made.box_count = from.boxes.size();
    made.status = shardmesh_error_status(error);
    made.system_error = from.fields.sys;
    c_api::give(fields, made, "fields");
  });
}

const shardmesh_error* shardmesh_error_next(const shardmesh_error* error) {
  return error == nullptr ? nullptr : error->next.get();
}

void shardmesh_error_free(shardmesh_error* error) {
  if (error != &out_of_memory()) delete error;
}

}  // extern "C"
