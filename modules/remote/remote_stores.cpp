// SPDX-License-Identifier: Apache-2.0
// Registers the stores of this room. Room `storage` calls the function before it looks for a store, if the program
// links this room: the link option of the CMake target makes the linker take this file from the archive.
module;
#include <cstdlib>
#include <memory>
#include <string>
module shardmesh.remote;

import :hf_store_parts;
import :http_store_parts;
import :process_client;

namespace {

shardmesh::result<shardmesh::hf_token> hf_token_of_environment() {
  const char* const value = std::getenv("HF_TOKEN");
  return shardmesh::hf_token{value != nullptr ? value : "", "HF_TOKEN"};
}

}  // namespace

extern "C" void shardmesh_register_remote_stores() {
  using namespace shardmesh;
  using namespace shardmesh::remote;
  const auto client = std::make_shared<const process_client>(options_of_environment());
  const auto web = make_http_store_over(client);
  detail::add_default_store("http", web);
  detail::add_default_store("https", web);
  detail::add_default_store("hf", make_hf_store_over({.token = hf_token_of_environment}, client));
  // The stores of s3 and gs are added here, over the same client.
}
