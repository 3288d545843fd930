// SPDX-License-Identifier: Apache-2.0
// curl_library: libcurl, which is loaded with the first request. A program that opens no URL starts without it and the
// thirty libraries that it needs. A static libcurl is linked instead. Internal to `remote`.
module shardmesh.remote:curl_library;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::remote {

// Loads and initialises libcurl, once per process. Thread-safe.
// \errors errc::unsupported, with the names that were tried and the loader's messages
result<void> load_curl();

// Returns the `curl_functions` of curl_functions.hpp; its members are null before `load_curl` has succeeded. It is
// `const void*` here, because the interfaces of the room name no types of libcurl.
const void* curl_table();

}  // namespace shardmesh::remote
