// SPDX-License-Identifier: Apache-2.0
// The members of `distribution`, which forward to its model, and the digest.
module;
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

// A running XXH3 over 64-bit little-endian numbers, so that it is the same on every machine.
class hasher {
 public:
  void add(std::int64_t value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < 8; ++i, bits >>= 8) buffer_[used_ + i] = static_cast<std::byte>(bits);
    used_ += 8;
    if (used_ == sizeof buffer_) flush();
  }
  void add(const extents& values) {
    for (const std::int64_t value : values) add(value);
  }
  digest128 finish() {
    flush();
    return sum_.digest();
  }

 private:
  void flush() {
    sum_.update(std::span(buffer_).first(used_));
    used_ = 0;
  }
  xxh3_stream sum_;
  std::byte buffer_[4096];
  std::size_t used_ = 0;
};

struct no_fragments final : distribution::model {
  no_fragments() { shape = extents{0}; }
  std::int64_t fragment_count() const override { return 0; }
  void fragments_of(owner_id, fragment_visitor) const override {}
  void overlapping(const box&, fragment_visitor) const override {}
};

}  // namespace

// Hashes the canonical form: the header, then every owner's fragments sorted by (slot, box, local offsets, term).
digest128 distribution::model::digest() const {
  std::call_once(once_, [this] {
    hasher hash;
    hash.add(static_cast<std::int64_t>(shape.rank()));
    hash.add(shape);
    for (const auto value : {static_cast<std::int64_t>(space), static_cast<std::int64_t>(reduction), divisor,
                             static_cast<std::int64_t>(owners), fragment_count()})
      hash.add(value);
    std::vector<fragment> held;
    for_each_owner([&](owner_id owner) {
      held.clear();
      fragments_of(owner, [&](const fragment& f) { return held.push_back(f), true; });
      const auto before = [](const fragment& a, const fragment& b) {
        if (a.slot != b.slot) return a.slot < b.slot;
        if (a.where != b.where) return a.where < b.where;
        if (a.local_offsets != b.local_offsets) return a.local_offsets < b.local_offsets;
        return a.term < b.term;
      };
      if (!std::is_sorted(held.begin(), held.end(), before)) std::sort(held.begin(), held.end(), before);
      for (const fragment& f : held) {
        hash.add(f.owner);
        hash.add(f.slot);
        hash.add(f.term);
        hash.add(f.where.offsets);
        hash.add(f.where.sizes);
        hash.add(f.local_offsets);
      }
    });
    digest_ = hash.finish();
  });
  return digest_;
}

digest128 digest_of(std::span<const std::int64_t> numbers) {
  // Plans are looked up by digests of about ten numbers each. On little-endian machines, the array is hashed in one
  // call.
  if constexpr (std::endian::native == std::endian::little) return xxh3(std::as_bytes(numbers));
  hasher hash;
  for (const std::int64_t number : numbers) hash.add(number);
  return hash.finish();
}

void distribution::model::for_each_owner(function_ref<void(owner_id)> visit) const {
  for (owner_id owner = 0; owner < owners; ++owner) visit(owner);
}

distribution::distribution() {
  static const auto none = std::make_shared<const no_fragments>();
  model_ = none;
}
distribution::distribution(std::shared_ptr<const model> description) : model_(std::move(description)) {}

const extents& distribution::global_shape() const {
  return model_->shape;
}
owner_space distribution::space() const {
  return model_->space;
}
owner_id distribution::owners() const {
  return model_->owners;
}
reduce_op distribution::reduction() const {
  return model_->reduction;
}
std::int64_t distribution::divisor() const {
  return model_->divisor;
}
std::int32_t distribution::terms() const {
  return model_->terms;
}
bool distribution::is_complete() const {
  return model_->is_complete;
}
digest128 distribution::digest() const {
  return model_->digest();
}
digest128 distribution::description_digest() const {
  return model_->description_digest();
}
std::int64_t distribution::fragment_count() const {
  return model_->fragment_count();
}
void distribution::fragments_of(owner_id owner, fragment_visitor visit) const {
  model_->fragments_of(owner, visit);
}
void distribution::for_each_owner(function_ref<void(owner_id)> visit) const {
  model_->for_each_owner(visit);
}
std::optional<fragment_product> distribution::product_within(const box& where) const {
  return model_->product_within(where);
}
void distribution::overlapping(const box& where, fragment_visitor visit) const {
  model_->overlapping(where, visit);
}
bool operator==(const distribution& a, const distribution& b) {
  return a.is_same(b) || a.digest() == b.digest();
}

}  // namespace shardmesh
