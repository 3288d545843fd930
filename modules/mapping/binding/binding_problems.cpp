// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint_core;
import :binding_problems;

namespace shardmesh {
namespace {

constexpr std::int64_t most_problems = 10'000;

}  // namespace

error binding_problems::located(error e) const {
  return e.file.empty() ? std::move(e).with_file(file_) : e;
}

void binding_problems::add(error e) {
  problems_.add(located(std::move(e)));
}

bool binding_problems::may_suggest() const {
  return problems_.named.size() < most_suggestions;
}

bool binding_problems::are_too_many() const {
  return problems_.more > most_problems;
}

error binding_problems::take() && {
  return fail_all(std::move(problems_.named), problems_.more);
}

}  // namespace shardmesh
