// SPDX-License-Identifier: Apache-2.0
#include <shardmesh/c_api/checking.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "../bindings/watched_reader.hpp"
#include "checkpoint.hpp"
#include "values.hpp"
#include "watching.hpp"

import shardmesh;

struct shardmesh_verify_report {
  using mark_type = c_api::marked<c_api::handle_kind::verify_report>;
  mark_type mark;
  shardmesh::verify_report made;
  std::unique_ptr<shardmesh_error> problems, warnings;
};

struct shardmesh_diff_report {
  using mark_type = c_api::marked<c_api::handle_kind::diff_report>;
  mark_type mark;
  shardmesh::diff_report made;
  std::unique_ptr<shardmesh_error> problems;
};

namespace c_api {
using namespace shardmesh;

static_assert(SHARDMESH_DIFFERENCE_ONLY_LEFT == static_cast<int>(difference_kind::only_left));
static_assert(SHARDMESH_DIFFERENCE_ONLY_RIGHT == static_cast<int>(difference_kind::only_right));
static_assert(SHARDMESH_DIFFERENCE_VALUES == static_cast<int>(difference_kind::values));
static_assert(SHARDMESH_DIFFERENCE_UNREADABLE == static_cast<int>(difference_kind::unreadable));

namespace {

verify_options to_verify(const shardmesh_verify_options& wanted) {
  verify_options made{.quick = wanted.quick != 0, .threads = to_threads(wanted.threads)};
  if (wanted.max_problems > 0) made.max_problems = wanted.max_problems;
  if (wanted.allow_global_count > 0 && wanted.allow_globals == nullptr) refuse_null("allow_globals");
  for (std::size_t i = 0; i < wanted.allow_global_count; ++i)
    made.allow_globals.emplace_back(to_text(wanted.allow_globals[i], "allow_globals"));
  return made;
}

diff_options to_diff(const shardmesh_diff_options& wanted) {
  diff_options made;
  made.tolerance = wanted.tolerance;
  made.layout = wanted.layout != 0;
  made.ignore_dtype = wanted.ignore_dtype != 0;
  made.threads = to_threads(wanted.threads);
  made.memory_bytes = to_memory(wanted.memory_bytes, made.memory_bytes);
  return made;
}

// A stopped check has covered only a part, so it returns no report.
verify_report verify_watched(shardmesh_checkpoint& from, const shardmesh_verify_options& wanted) {
  const verify_options how = to_verify(wanted);
  return watched_result(wanted.call, [&](bindings::watch& watching) {
    const taken_alone alone(watching, from);
    checkpoint_reader& reader = *from.reader;
    if (!is_watched(wanted.call)) return value_of(verify(reader, how));
    auto made = verify(*bindings::watched(reader, watching), how);
    check_stopped(watching);
    return value_of(std::move(made));
  });
}

diff_report diff_watched(shardmesh_checkpoint& left, shardmesh_checkpoint& right,
                         const shardmesh_diff_options& wanted) {
  const diff_options how = to_diff(wanted);
  return watched_result(wanted.call, [&](bindings::watch& watching) {
    const taken_alone alone(watching, left, &right);
    if (!is_watched(wanted.call)) return value_of(diff(*left.reader, *right.reader, how));
    const auto one = bindings::watched(*left.reader, watching), other = bindings::watched(*right.reader, watching);
    auto made = diff(*one, *other, how);
    check_stopped(watching);
    return value_of(std::move(made));
  });
}

shardmesh_difference described(const key_difference& d) {
  shardmesh_difference made{};
  made.key = to_c(d.key);
  made.text = to_c(d.text);
  made.different = d.different;
  made.elements = d.elements;
  made.largest = d.largest;
  made.rank = static_cast<std::int64_t>(d.first_index.rank());
  copy_to(made.first_index, d.first_index);
  made.kind = static_cast<shardmesh_difference_kind>(d.kind);
  return made;
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_verify(shardmesh_checkpoint* checkpoint, const shardmesh_verify_options* options,
                                  shardmesh_verify_report** report, shardmesh_error** error) {
  return guarded(error, report, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    const shardmesh_verify_options wanted =
        given(options, "options", offsetof(shardmesh_verify_options, allow_globals));
    auto made = std::make_unique<shardmesh_verify_report>();
    made->made = verify_watched(from, wanted);
    made->problems = list_of(made->made.problems);
    made->warnings = list_of(made->made.warnings);
    return made;
  });
}

shardmesh_status shardmesh_verify_report_describe(const shardmesh_verify_report* report,
                                                  shardmesh_verify_counts* counts, shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::verify_report& from = opened(report, "report").made;
    shardmesh_verify_counts made{};
    made.problem_count = from.problems.size();
    made.more_problems = from.more_problems;
    made.chunks = from.chunks;
    made.objects = from.objects;
    made.bytes = from.bytes;
    made.checked_bytes = from.checked_bytes;
    made.unchecked_chunks = from.unchecked_chunks;
    made.unchecked_objects = from.unchecked_objects;
    made.unread_tensors = from.unread_tensors;
    give(counts, made, "counts", offsetof(shardmesh_verify_counts, unread_tensors));
  });
}

const shardmesh_error* shardmesh_verify_report_problems(const shardmesh_verify_report* report) {
  return report == nullptr ? nullptr : report->problems.get();
}

const shardmesh_error* shardmesh_verify_report_warnings(const shardmesh_verify_report* report) {
  return report == nullptr ? nullptr : report->warnings.get();
}

void shardmesh_verify_report_free(shardmesh_verify_report* report) {
  delete report;
}

shardmesh_status shardmesh_diff(shardmesh_checkpoint* left, shardmesh_checkpoint* right,
                                const shardmesh_diff_options* options, shardmesh_diff_report** report,
                                shardmesh_error** error) {
  return guarded(error, report, [&] {
    shardmesh_checkpoint& one = opened(left, "left");
    shardmesh_checkpoint& other = opened(right, "right");
    const shardmesh_diff_options wanted = given(options, "options");
    auto made = std::make_unique<shardmesh_diff_report>();
    made->made = diff_watched(one, other, wanted);
    made->problems = list_of(made->made.problems);
    return made;
  });
}

shardmesh_status shardmesh_diff_report_describe(const shardmesh_diff_report* report, shardmesh_diff_counts* counts,
                                                shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::diff_report& from = opened(report, "report").made;
    shardmesh_diff_counts made{};
    made.difference_count = from.differences.size();
    made.problem_count = from.problems.size();
    made.tensors = from.tensors;
    made.objects = from.objects;
    made.bytes = from.bytes;
    give(counts, made, "counts");
  });
}

shardmesh_status shardmesh_diff_report_difference(const shardmesh_diff_report* report, size_t index,
                                                  shardmesh_difference* difference, shardmesh_error** error) {
  return guarded(error, [&] {
    const auto& differences = opened(report, "report").made.differences;
    check_index(index, differences.size(), "difference");
    give(difference, described(differences[index]), "difference");
  });
}

const shardmesh_error* shardmesh_diff_report_problems(const shardmesh_diff_report* report) {
  return report == nullptr ? nullptr : report->problems.get();
}

void shardmesh_diff_report_free(shardmesh_diff_report* report) {
  delete report;
}

}  // extern "C"
