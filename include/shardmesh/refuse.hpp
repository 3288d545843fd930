// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_REFUSE: a deleted overload that gives its reason. The compiler rejects wrong arguments of a constrained
// function with a list of candidates. An overload with this macro accepts exactly the likely mistakes, so that the
// first error is a sentence. The overload is deleted rather than asserted, so that `requires { f(x); }` stays false.
#pragma once

#if defined(__cpp_deleted_function) && __cpp_deleted_function >= 202403L
#if defined(__clang__)
// Before C++26 this is an extension, and Clang warns about it.
#define SHARDMESH_REFUSE(why)      \
  _Pragma("clang diagnostic push") \
      _Pragma("clang diagnostic ignored \"-Wc++26-extensions\"") delete (why)_Pragma("clang diagnostic pop")
#else
#define SHARDMESH_REFUSE(why) delete (why)
#endif
#else
#define SHARDMESH_REFUSE(why) delete
#endif
