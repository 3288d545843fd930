// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.digest;
import :kept_plan;
import :path_wire;

namespace shardmesh {
namespace {

// The sum of digests, each part without carry.
void add(digest128& sum, const digest128& one, std::int64_t times) {
  sum.low += static_cast<std::uint64_t>(times) * one.low;
  sum.high += static_cast<std::uint64_t>(times) * one.high;
}

// Whether some ranks have the plan with this number, and the sum of their objects' digests.
struct proposal {
  bool has_plan = false;
  digest128 id, objects;
};

std::vector<std::byte> encode(const proposal& one) {
  detail::wire_writer out;
  out.flag(one.has_plan);
  out.digest(one.id);
  out.digest(one.objects);
  return std::move(out).take();
}

// Malformed bytes propose nothing.
proposal decode(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  proposal one{in.flag(), in.digest(), in.digest()};
  return in.finished() ? one : proposal();
}

}  // namespace

struct save_plan_cache::state {
  std::mutex mutex;
  std::shared_ptr<const kept_plan> latest;
  std::int64_t reuses = 0;
};

save_plan_cache save_plan_cache::make() {
  save_plan_cache made;
  made.state_ = std::make_shared<state>();
  return made;
}

std::int64_t save_plan_cache::reuses() const {
  const std::lock_guard locked(state_->mutex);
  return state_->reuses;
}

digest128 plan_key(const const_local_state& held, std::vector<described_object> objects,
                   std::span<const agreement_record> conditions, communicator_ref comm) {
  for (described_object& object : objects) {
    object.digest = {};
    object.summary.clear();
  }
  detail::wire_writer out;
  out.number(comm.rank());
  out.number(comm.size());
  out.bytes(describe(held, objects));
  for (const agreement_record& one : conditions) {
    if (one.key == "(destination)" || one.key == "(previous)") continue;
    out.text(one.key);
    out.text(one.text);
  }
  return xxh3(out.written());
}

std::vector<object_weights> weigh_objects(const merged_state& all, std::span<const selected> kept, std::int32_t ranks) {
  std::vector<object_weights> weights(static_cast<std::size_t>(ranks));
  for (const selected& one : kept) {
    if (one.index < all.tensors.size()) continue;
    const merged_object& object = all.objects[one.index - all.tensors.size()];
    if (object.ranks.size() == 1) continue;
    for (std::size_t i = 0; i < object.ranks.size(); ++i) {
      object_weights& of_rank = weights[static_cast<std::size_t>(object.ranks[i])];
      if (of_rank.size() <= object.indices[i]) of_rank.resize(object.indices[i] + 1);
      of_rank[object.indices[i]] = i == 0 ? std::ssize(object.ranks) - 1 : -1;
    }
  }
  return weights;
}

digest128 new_plan_id() {
  std::random_device random;
  const auto half = [&] { return std::uint64_t{random()} << 32 | random(); };
  const std::uint64_t low = half();
  return {low, half()};
}

void write_plan_id(detail::wire_writer& out, const digest128& id, const object_weights& weights) {
  out.digest(id);
  out.number(std::ssize(weights));
  for (const std::int64_t weight : weights) out.number(weight);
}

bool read_plan_id(detail::wire_reader& in, kept_plan& plan) {
  plan.id = in.digest();
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) plan.weights.push_back(in.number());
  return in.ok();
}

void combine_proposals(std::vector<std::byte>& all, std::span<const std::byte> one) {
  proposal sum = decode(all);
  const proposal other = decode(one);
  sum.has_plan = sum.has_plan && other.has_plan && sum.id == other.id;
  add(sum.objects, other.objects, 1);
  all = encode(sum);
}

std::vector<std::byte> plan_keeper::propose(const digest128& key, std::span<const described_object> objects) {
  if (cache_.is_none()) return encode({});
  {
    const std::lock_guard locked(cache_.state_->mutex);
    proposed_ = cache_.state_->latest;
  }
  if (!proposed_ || proposed_->key != key) return encode({});
  proposal mine{true, proposed_->id, {}};
  for (std::size_t i = 0; i < objects.size() && i < proposed_->weights.size(); ++i) {
    detail::wire_writer value;
    write(value, objects[i].where);
    value.digest(objects[i].digest);
    add(mine.objects, xxh3(value.written()), proposed_->weights[i]);
  }
  return encode(mine);
}

std::shared_ptr<const kept_plan> plan_keeper::settle(std::span<const std::byte> combined) {
  const proposal all = decode(combined);
  if (!all.has_plan || all.objects != digest128()) return nullptr;
  const std::lock_guard locked(cache_.state_->mutex);
  ++cache_.state_->reuses;
  return proposed_;
}

void plan_keeper::keep(kept_plan plan) {
  if (cache_.is_none()) return;
  plan.work.source.views.clear();
  auto latest = std::make_shared<const kept_plan>(std::move(plan));
  const std::lock_guard locked(cache_.state_->mutex);
  cache_.state_->latest = std::move(latest);
}

}  // namespace shardmesh
