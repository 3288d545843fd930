// SPDX-License-Identifier: Apache-2.0
// The problems of a call that returns a `result`, as a list for `text_of` and `must_say`. It names no shardmesh type,
// so that it can be included before imports.
#pragma once

/// Returns all kept problems of a call that failed, and none of one that worked.
template <class Result>
auto problems_of(const Result& done) {
  using list = decltype(done.error().problems());
  return done ? list() : done.error().problems();
}
