// SPDX-License-Identifier: Apache-2.0
module;
#ifdef SHARDMESH_CURL_LIBRARY
#include <dlfcn.h>
#endif
#include <remote/http/curl_functions.hpp>
#include <shardmesh/try.hpp>

#include <initializer_list>
#include <string>
module shardmesh.remote;

import :curl_library;

namespace shardmesh::remote {
namespace {

curl_functions& functions() {
  static curl_functions table;
  return table;
}

#ifdef SHARDMESH_CURL_LIBRARY

// The name at build time, and the name under which Debian and its derivatives ship libcurl with GnuTLS. Both have the
// same functions.
constexpr std::initializer_list<const char*> curl_names = {SHARDMESH_CURL_LIBRARY, "libcurl-gnutls.so.4"};

result<void*> open_library() {
  std::string tried, reasons;
  for (const char* const name : curl_names) {
    // It stays loaded: libcurl has global state.
    if (void* const opened = ::dlopen(name, RTLD_NOW | RTLD_LOCAL); opened != nullptr) return opened;
    const char* const reason = ::dlerror();
    tried += (tried.empty() ? "" : ", ") + std::string(name);
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : "no reason given");
  }
  return fail(errc::unsupported, "URLs need libcurl, which cannot be loaded (" + reasons + ")")
      .with_values("a library on the loader's path", tried)
      .with_hint("install libcurl 7.88 or newer (Debian: libcurl4)");
}

result<curl_functions> find_functions() {
  SHARDMESH_TRY(void* const library, open_library());
  curl_functions found;
  std::string missing;
#define SHARDMESH_FIND_CURL(name)                                                       \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(library, "curl_" #name)); \
  if (found.name == nullptr && missing.empty()) missing = "curl_" #name;
  SHARDMESH_EACH_CURL_FUNCTION(SHARDMESH_FIND_CURL)
#undef SHARDMESH_FIND_CURL
  if (missing.empty()) return found;
  return fail(errc::unsupported, "the installed libcurl has no function " + missing)
      .with_hint("install libcurl 7.88 or newer");
}

#else

result<curl_functions> find_functions() {
  curl_functions found;
#define SHARDMESH_FIND_CURL(name) found.name = &::curl_##name;
  SHARDMESH_EACH_CURL_FUNCTION(SHARDMESH_FIND_CURL)
#undef SHARDMESH_FIND_CURL
  return found;
}

#endif

result<void> load() {
  SHARDMESH_TRY(const curl_functions found, find_functions());
  if (const CURLcode code = found.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
    return fail(errc::unsupported, std::string("libcurl cannot be initialised: ") + found.easy_strerror(code));
  functions() = found;
  return {};
}

}  // namespace

result<void> load_curl() {
  static const result<void> outcome = load();
  return outcome;
}

const void* curl_table() {
  return &functions();
}

}  // namespace shardmesh::remote
