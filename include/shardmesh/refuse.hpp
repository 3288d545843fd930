// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_REFUSE: a deleted overload that says why. A constrained function refuses what does not fit with a list of
// candidates; beside it stands one that takes exactly the likely mistakes, so that the first error is a sentence. It is
// deleted, not asserted, so that `requires { f(x); }` stays false.
#pragma once

#if defined(__cpp_deleted_function) && __cpp_deleted_function >= 202403L
#if defined(__clang__)
// Before C++26 it is an extension, of which Clang warns.
#define SHARDMESH_REFUSE(why)      \
  _Pragma("clang diagnostic push") \
      _Pragma("clang diagnostic ignored \"-Wc++26-extensions\"") delete (why)_Pragma("clang diagnostic pop")
#else
#define SHARDMESH_REFUSE(why) delete (why)
#endif
#else
#define SHARDMESH_REFUSE(why) delete
#endif
