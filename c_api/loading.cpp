// SPDX-License-Identifier: Apache-2.0
#include <shardmesh/c_api/loading.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../bindings/watched_reader.hpp"
#include "checkpoint.hpp"
#include "requests.hpp"
#include "values.hpp"
#include "watching.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace c_api {
using namespace shardmesh;

namespace {

// Errors of a request name its key.
load_request to_request(const shardmesh_load_request& wanted) {
  load_request made;
  made.key = to_key(wanted.key, wanted.key_size);
  try {
    made.to = to_view(wanted.to);
    made.where = box::whole(made.to.sizes);
    if (wanted.offsets != nullptr) made.where.offsets = to_sizes(wanted.offsets, wanted.to.rank, "offsets of a box");
  } catch (refusal& e) {
    e.problems.front().key = made.key;
    throw;
  }
  return made;
}

// For a request of a whole tensor: a smaller buffer would receive only the first corner.
void check_is_whole(const checkpoint_reader& reader, const load_request& wanted) {
  const tensor_entry* found = reader.contents().find(wanted.key);
  if (found != nullptr && found->shape != wanted.where.sizes)
    refuse(fail(errc::shape_mismatch, "memory for the whole tensor has another shape")
               .with_key(wanted.key)
               .with_values(to_string(found->shape), to_string(wanted.where.sizes)));
}

}  // namespace

std::vector<load_request> to_requests(const checkpoint_reader& reader, const shardmesh_load_request* requests,
                                      std::size_t count, bool allow_shape_mismatch) {
  if (count > 0 && requests == nullptr) refuse_null("requests");
  std::vector<load_request> made;
  made.reserve(count);
  for (const shardmesh_load_request& one : std::span(requests, count)) {
    made.push_back(to_request(one));
    if (one.offsets == nullptr && !allow_shape_mismatch) check_is_whole(reader, made.back());
  }
  return made;
}

namespace {

std::int64_t load_all(shardmesh_checkpoint& from, const shardmesh_load_request* requests, std::size_t count,
                      const shardmesh_load_options& options) {
  load_options how{.threads = to_threads(options.threads),
                   .allow_narrowing = options.allow_narrowing != 0,
                   .allow_shape_mismatch = options.allow_shape_mismatch != 0,
                   .check = options.check != 0};
  return watched_result(options.call, [&](bindings::watch& watching) {
    const auto shared = shared_use(watching, from);
    checkpoint_reader& reader = *from.reader;
    const std::vector<load_request> wanted = to_requests(reader, requests, count, how.allow_shape_mismatch);
    how.cancel = watching.stop.get_token();
    // Bytes are counted only for a call that is watched: counting copies the description.
    const auto counted = is_watched(options.call) ? bindings::watched(reader, watching) : nullptr;
    return value_of(load(counted ? *counted : reader, wanted, how)).bytes_read;
  });
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_load(shardmesh_checkpoint* checkpoint, const shardmesh_load_request* requests,
                                size_t request_count, const shardmesh_load_options* options, int64_t* bytes_read,
                                shardmesh_error** error) {
  return guarded(error, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    const shardmesh_load_options how = given(options, "options", offsetof(shardmesh_load_options, check));
    const std::int64_t read = load_all(from, requests, request_count, how);
    if (bytes_read != nullptr) *bytes_read = read;
  });
}

shardmesh_status shardmesh_load_object(shardmesh_checkpoint* checkpoint, size_t index, shardmesh_text* json,
                                       shardmesh_error** error) {
  return guarded(error, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    shardmesh_text& to = needed(json, "json");
    to = {};
    check_index(index, from.reader->contents().objects.size(), "object");
    const taken_alone alone(from);
    const shardmesh::object_value value = value_of(from.reader->read_object(index));
    const std::string text = shardmesh::object_document(value);
    char* copy = new char[text.size() + 1];
    std::memcpy(copy, text.c_str(), text.size() + 1);
    to = {copy, text.size()};
  });
}

void shardmesh_text_free(shardmesh_text text) {
  delete[] text.bytes;
}

}  // extern "C"
