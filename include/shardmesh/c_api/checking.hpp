// SPDX-License-Identifier: Apache-2.0
// `verify` and `diff`.
#pragma once
#include <shardmesh/c_api/checking.h>
#include <shardmesh/c_api/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardmesh {
namespace c_api {

struct verify_options {
  bool quick = false;
  int threads = 0;               // 0: all cores
  std::size_t max_problems = 0;  // 0: 1000
  watching call{};
  std::vector<std::string> allow_globals{};  // names in pickles to accept
};

struct verify_report {
  shardmesh_verify_counts counts{};
  std::vector<error> problems, warnings;
  bool ok() const { return problems.empty(); }
};

inline verify_report verify(const checkpoint& from, const verify_options& options = {}) {
  watched_call call(options.call);
  const std::vector<const char*> names = pointers(options.allow_globals);
  shardmesh_verify_options how{};
  how.struct_size = sizeof how;
  how.call = call.c();
  how.max_problems = options.max_problems;
  how.quick = options.quick ? 1 : 0;
  how.threads = options.threads;
  how.allow_globals = names.data();
  how.allow_global_count = names.size();
  made_handle<shardmesh_verify_report, &shardmesh_verify_report_free> report;
  call.run([&](shardmesh_error** e) { return shardmesh_verify(from.c(), &how, report.out(), e); });
  verify_report made;
  made.counts.struct_size = sizeof made.counts;
  checked([&](shardmesh_error** e) { return shardmesh_verify_report_describe(report.get(), &made.counts, e); });
  made.problems = errors_of(shardmesh_verify_report_problems(report.get()));
  made.warnings = errors_of(shardmesh_verify_report_warnings(report.get()));
  return made;
}

struct diff_options {
  double tolerance = 0;
  bool layout = false, ignore_dtype = false;
  int threads = 0;                // 0: all cores
  std::int64_t memory_bytes = 0;  // 0: the library's default
  watching call{};
};

/// One key that differs; `text` is the whole difference without the key.
struct difference {
  std::string key, text;
  shardmesh_difference_kind kind = SHARDMESH_DIFFERENCE_VALUES;
  std::int64_t different = 0, elements = 0;
  double largest = 0;
  std::vector<std::int64_t> first_index;
};

struct diff_report {
  shardmesh_diff_counts counts{};
  std::vector<difference> differences;
  std::vector<error> problems;
  bool equal() const { return differences.empty(); }
};

inline diff_report diff(const checkpoint& left, const checkpoint& right, const diff_options& options = {}) {
  watched_call call(options.call);
  shardmesh_diff_options how{};
  how.struct_size = sizeof how;
  how.call = call.c();
  how.tolerance = options.tolerance;
  how.memory_bytes = options.memory_bytes;
  how.layout = options.layout ? 1 : 0;
  how.ignore_dtype = options.ignore_dtype ? 1 : 0;
  how.threads = options.threads;
  made_handle<shardmesh_diff_report, &shardmesh_diff_report_free> report;
  call.run([&](shardmesh_error** e) { return shardmesh_diff(left.c(), right.c(), &how, report.out(), e); });
  diff_report made;
  made.counts.struct_size = sizeof made.counts;
  checked([&](shardmesh_error** e) { return shardmesh_diff_report_describe(report.get(), &made.counts, e); });
  for (std::size_t i = 0; i < made.counts.difference_count; ++i) {
    shardmesh_difference d{};
    d.struct_size = sizeof d;
    checked([&](shardmesh_error** e) { return shardmesh_diff_report_difference(report.get(), i, &d, e); });
    made.differences.push_back({to_string(d.key), to_string(d.text), d.kind, d.different, d.elements, d.largest,
                                std::vector<std::int64_t>(d.first_index, d.first_index + d.rank)});
  }
  made.problems = errors_of(shardmesh_diff_report_problems(report.get()));
  return made;
}

}  // namespace c_api
}  // namespace shardmesh
