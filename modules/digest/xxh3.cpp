// SPDX-License-Identifier: Apache-2.0
module;
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#ifdef SHARDMESH_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>  // its macros select the processor's widest vectors for the functions below
#endif

#include <cstddef>
#include <memory>
#include <span>
module shardmesh.digest;

namespace shardmesh {

struct xxh3_stream::state {
  XXH3_state_t hash;
};

xxh3_stream::xxh3_stream() : state_(std::make_unique_for_overwrite<state>()) {
  XXH3_128bits_reset(&state_->hash);
}
xxh3_stream::xxh3_stream(xxh3_stream&&) noexcept = default;
xxh3_stream& xxh3_stream::operator=(xxh3_stream&&) noexcept = default;
xxh3_stream::~xxh3_stream() = default;

void xxh3_stream::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

digest128 xxh3_stream::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return {hash.low64, hash.high64};
}

digest128 xxh3(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace shardmesh
