// SPDX-License-Identifier: Apache-2.0
// The functions of libcurl that the room calls, as a table. Bodies include this header instead of calling libcurl by
// name, so that a program which opens no URL runs without libcurl.
#pragma once
#include <curl/curl.h>

namespace shardmesh::remote {

// SHARDMESH_EACH_CURL_FUNCTION(ONE) is ONE(name) for each function, without the prefix "curl_".
// clang-format off
#define SHARDMESH_EACH_CURL_FUNCTION(ONE) \
  ONE(global_init) ONE(easy_init) ONE(easy_cleanup) ONE(easy_setopt) ONE(easy_getinfo) \
  ONE(easy_strerror) ONE(multi_init) ONE(multi_cleanup) ONE(multi_setopt) ONE(multi_add_handle) \
  ONE(multi_remove_handle) ONE(multi_perform) ONE(multi_poll) ONE(multi_wakeup) \
  ONE(multi_info_read) ONE(slist_append) ONE(slist_free_all)
// clang-format on

struct curl_functions {
#define SHARDMESH_CURL_MEMBER(name) decltype(&::curl_##name) name = nullptr;
  SHARDMESH_EACH_CURL_FUNCTION(SHARDMESH_CURL_MEMBER)
#undef SHARDMESH_CURL_MEMBER
};

}  // namespace shardmesh::remote
