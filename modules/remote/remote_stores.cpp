// SPDX-License-Identifier: Apache-2.0
// Registers the stores of this room. Room `storage` calls the function before it looks for a store, if the program
// links this room: the link option of the CMake target makes the linker take this file from the archive.
module;
#include <shardmesh/try.hpp>

#include <memory>
#include <string>
module shardmesh.remote;

import :environment;
import :hf_store_parts;
import :http_store_parts;
import :hugging_face;
import :process_client;
import :s3_store_parts;

namespace shardmesh::remote {
namespace {

// The environment is copied when the stores are registered: a thread that reads it later could meet a change.
void register_stores() {
  const auto client = std::make_shared<const process_client>(options_of_environment());
  const auto web = make_http_store_over(client);
  detail::add_default_store("http", web);
  detail::add_default_store("https", web);
  const auto hub_token = [variables = process_environment()]() -> result<hf_token> {
    SHARDMESH_TRY(const hugging_face_token found, find_hugging_face_token(variables));
    return hf_token{std::string(found.text.reveal()), found.source};
  };
  detail::add_default_store("hf", make_hf_store_over({.token = hub_token}, client));
  for (const char* const scheme : {"s3", "gs"})
    detail::add_default_store(scheme, make_s3_store_over(client, {}, scheme));
}

}  // namespace
}  // namespace shardmesh::remote

extern "C" void shardmesh_register_remote_stores() {
  shardmesh::remote::register_stores();
}
