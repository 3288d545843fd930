// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.backend_property.
module;
#include <algorithm>
#include <array>
#include <cast_patterns.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <iterator>
#include <random>
#include <random_views.hpp>
#include <string>
#include <utility>
#include <vector>
module shardmesh.test.backend_property;

import shardmesh.kernels;
import shardmesh.test.reference_kernels;
import shardmesh.test.special_views;

using namespace shardmesh;
using random_views::owned_view;

namespace backend_property {
namespace {

constexpr reduce_op all_ops[] = {reduce_op::sum, reduce_op::avg,  reduce_op::product, reduce_op::min,
                                 reduce_op::max, reduce_op::band, reduce_op::bor,     reduce_op::bxor};

// A view with its own memory, a copy of that memory in the backend, and the result that the reference computes.
struct slot {
  owned_view view;
  tensor_view wanted;
  std::vector<std::byte> expected;
  device_buffer buffer;
  std::byte* base = nullptr;  // start of the memory within the buffer
};

struct piece {
  batch_op op = batch_op::copy;
  reduce_op reduction = reduce_op::none;
  double factor = 1;
  std::size_t to = 0, from = 0;
  std::uint32_t phase = 0;
};

class trial {
 public:
  trial(kernel_backend& backend, device where, std::uint64_t seed) : backend_(backend), where_(where), dice_(seed) {}

  dice& random() { return dice_; }

  std::size_t add_slot(const extents& sizes, dtype type, bool is_source) {
    slot made;
    made.view = special_views::make(dice_.engine(), sizes, type, is_source);
    slots_.push_back(std::move(made));
    return slots_.size() - 1;
  }
  void add(const piece& p) { pieces_.push_back(p); }
  owned_view& view(std::size_t s) { return slots_[s].view; }

  std::string run() {
    for (slot& s : slots_) s.wanted = special_views::in_copy(s.view, s.expected);
    for (slot& s : slots_)
      if (std::string problem = send(s); !problem.empty()) return problem;
    batch_builder work;
    for (const piece& p : pieces_)
      if (const auto added = append(work, p); !added) return "not added: " + to_string(added.error());
    auto batch = backend_.prepare(work.items(), where_);
    if (!batch) return "not prepared: " + to_string(batch.error());
    if ((*batch)->items() != work.items().size()) return "the batch has another number of items";

    std::vector<std::byte*> to;
    for (slot& s : slots_) to.push_back(s.base);
    const std::vector<const std::byte*> from(to.begin(), to.end());
    for (int time = 0; time < 2; ++time) {
      if (const auto done = backend_.run(**batch, {to, from}, {}); !done) return "not run: " + to_string(done.error());
      expect();
    }
    const auto event = backend_.record(where_, {});
    if (!event || !(*event)->wait()) return "the work does not end";
    for (std::size_t s = 0; s < slots_.size(); ++s)
      if (std::string problem = fetch(slots_[s]); !problem.empty()) return named(s) + problem;
    return {};
  }

 private:
  // Aligns half of all memory to 16 bytes at its view's lowest element; random_views never does.
  std::string send(slot& s) {
    const auto bytes = static_cast<std::int64_t>(s.view.memory.size());
    const std::int64_t pad = dice_.one_in(2) ? 15 : dice_.below(16);
    auto buffer = backend_.allocate(bytes + 16, where_, {});
    if (!buffer) return "no memory: " + to_string(buffer.error());
    s.buffer = std::move(*buffer);
    s.base = s.buffer.data() + pad;
    const auto sent = backend_.copy_across(s.base, where_, s.view.memory.data(), {}, bytes, {});
    return sent ? std::string() : "not copied: " + to_string(sent.error());
  }
  std::string fetch(slot& s) {
    const auto bytes = static_cast<std::int64_t>(s.view.memory.size());
    const auto fetched = backend_.copy_across(s.view.memory.data(), {}, s.base, where_, bytes, {});
    if (!fetched) return "not copied back: " + to_string(fetched.error());
    const auto event = backend_.record(where_, {});
    if (!event || !(*event)->wait()) return "the copy back does not end";
    return special_views::difference(s.view, s.wanted, s.expected);
  }

  placed_view placed(std::size_t s) const {
    const owned_view& v = slots_[s].view;
    return place(static_cast<std::uint32_t>(s), v.memory.data(), v.view);
  }
  result<void> append(batch_builder& work, const piece& p) {
    switch (p.op) {
      case batch_op::copy:
        return work.copy(placed(p.to), placed(p.from), p.phase);
      case batch_op::accumulate:
        return work.accumulate(placed(p.to), placed(p.from), p.reduction, p.phase);
      case batch_op::fill:
        return work.fill_identity(placed(p.to), p.reduction, p.phase);
      case batch_op::scale:
        return work.scale(placed(p.to), p.factor, p.phase);
      case batch_op::divide:
        return work.divide(placed(p.to), p.factor, p.phase);
    }
    return {};
  }
  void expect() {
    std::uint32_t phases = 0;
    for (const piece& p : pieces_) phases = std::max(phases, p.phase + 1);
    for (std::uint32_t phase = 0; phase < phases; ++phase)
      for (const piece& p : pieces_)
        if (p.phase == phase) expect(p);
  }
  void expect(const piece& p) {
    const tensor_view& to = slots_[p.to].wanted;
    const const_tensor_view from = slots_[p.from].wanted;
    if (p.op == batch_op::copy) reference::copy(to, from);
    if (p.op == batch_op::accumulate) reference::accumulate(to, from, p.reduction);
    if (p.op == batch_op::fill) reference::fill_identity(to, p.reduction);
    if (p.op == batch_op::scale) reference::scale(to, p.factor);
    if (p.op == batch_op::divide) reference::divide(to, p.factor);
  }
  std::string named(std::size_t s) const {
    std::string text = "slot " + std::to_string(s) + " (" + std::string(name(slots_[s].view.view.type)) + " " +
                       to_string(slots_[s].view.view.sizes) + " with strides " +
                       to_string(slots_[s].view.view.strides) + "; ";
    for (const piece& p : pieces_)
      if (p.to == s)
        text += "operation " + std::to_string(static_cast<int>(p.op)) + " " + std::string(to_string(p.reduction)) +
                " of " + std::string(name(slots_[p.from].view.view.type)) + " with strides " +
                to_string(slots_[p.from].view.view.strides) + " in phase " + std::to_string(p.phase) + ", ";
    return text + "): ";
  }

  kernel_backend& backend_;
  device where_;
  dice dice_;
  std::vector<slot> slots_;
  std::vector<piece> pieces_;
};

// Random sizes of up to 10 dimensions, which is more than an item has loops.
extents sizes_of(dice& random) {
  if (random.one_in(4)) return {random.below(700)};
  if (random.one_in(12)) return {};
  if (random.one_in(6)) {
    extents many;
    for (std::int64_t rank = 6 + random.below(5); rank > 0; --rank) many.push_back(1 + random.below(3));
    return many;
  }
  return random_views::random_sizes(random.engine());
}

dtype some_type(dice& random) {
  for (;;) {
    const dtype type = all_dtypes()[random.one_of(all_dtypes().size())];
    if (type != dtype::undefined && bits(type) % 8 == 0) return type;
  }
}
// A random dtype that converts to `to`, often `to` itself.
dtype some_source(dice& random, dtype to) {
  for (;;) {
    const dtype type = random.one_in(3) ? to : some_type(random);
    if (is_convertible(type, to)) return type;
  }
}

// Values avoid cases without a unique answer: a sum of sums would overflow integers.
void add_piece(trial& t, std::uint32_t phases) {
  dice& random = t.random();
  const extents sizes = sizes_of(random);
  const dtype type = some_type(random);
  piece p;
  p.to = t.add_slot(sizes, type, false);
  p.from = p.to;
  p.phase = static_cast<std::uint32_t>(random.below(phases));
  const auto reduction = [&] {
    for (int tries = 0; tries < 20; ++tries) {
      const reduce_op op = all_ops[random.one_of(std::size(all_ops))];
      if (is_combinable(type, op)) return op;
    }
    return reduce_op::none;
  };
  const std::int64_t kind = random.below(8);
  if (kind == 5 && (p.reduction = reduction()) != reduce_op::none) {
    p.op = batch_op::fill;
  } else if (kind >= 6 && is_scalable(type)) {
    p.op = kind == 6 ? batch_op::scale : batch_op::divide;
    p.factor = kind == 6 ? -0.375 : 3;
  } else {
    p.from = t.add_slot(sizes, some_source(random, type), true);
    if (kind >= 3 && (p.reduction = reduction()) != reduce_op::none) p.op = batch_op::accumulate;
  }
  t.add(p);
  // A later phase changes the result once more.
  if (p.phase + 1 < phases && is_scalable(type) && random.one_in(3)) {
    piece later{.op = batch_op::scale, .factor = 0.5, .to = p.to, .from = p.to, .phase = p.phase + 1};
    t.add(later);
  }
}

// A view with these strides at a random byte offset, filled with random small values.
owned_view plain(dice& random, const extents& sizes, const extents& strides, dtype type) {
  owned_view made;
  made.item = static_cast<std::size_t>(item_bytes(type));
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.rank(); ++d) last += (sizes[d] - 1) * strides[d];
  made.memory.resize(static_cast<std::size_t>(last + 1) * made.item + 17);
  // Small whole numbers are exact in every dtype, conversion, and sum.
  for (std::byte& b : made.memory) b = std::byte{0};
  made.view = {made.memory.data() + random.below(17), type, {}, sizes, strides};
  std::byte values[64][16]{};
  for (auto& value : values) reference::store(type, {static_cast<long double>(random.below(8)), 0}, value);
  for (std::int64_t at = 0; at <= last; ++at)
    std::memcpy(made.view.data + at * static_cast<std::int64_t>(made.item), values[random.one_of(64)], made.item);
  return made;
}

}  // namespace

std::string difference(kernel_backend& backend, device where, std::uint64_t seed) {
  trial t(backend, where, seed);
  const auto phases = static_cast<std::uint32_t>(1 + t.random().below(3));
  for (std::int64_t items = t.random().up_to(40); items > 0; --items) add_piece(t, phases);
  return t.run();
}

std::string difference_when_large(kernel_backend& backend, device where, std::uint64_t seed) {
  trial t(backend, where, seed);
  dice& random = t.random();
  const auto add = [&](batch_op op, const extents& sizes, dtype to, const extents& to_strides, dtype from,
                       const extents& from_strides) {
    piece p{.op = op, .reduction = op == batch_op::accumulate ? reduce_op::sum : reduce_op::none};
    p.to = t.add_slot({1}, to, false);
    t.view(p.to) = plain(random, sizes, to_strides, to);
    p.from = t.add_slot({1}, from, false);
    t.view(p.from) = plain(random, sizes, from_strides, from);
    t.add(p);
  };
  const std::int64_t run = (3 << 20) + random.below(100);
  add(batch_op::copy, {run}, dtype::uint8, {1}, dtype::uint8, {1});
  const std::int64_t rows = 600 + random.below(300), row = 100 + random.below(4000);
  add(batch_op::copy, {rows, row}, dtype::uint8, {row + random.below(80), 1}, dtype::uint8,
      {row + random.below(80), 1});
  const std::int64_t a = 130 + random.below(100), b = 130 + random.below(100);
  for (const dtype type : {dtype::uint8, dtype::bfloat16, dtype::float32, dtype::float64, dtype::complex128})
    add(batch_op::copy, {a, b}, type, {b, 1}, type, {1, a + random.below(3)});
  add(batch_op::copy, {a, b}, dtype::bfloat16, {b, 1}, dtype::float32, {1, a});
  add(batch_op::accumulate, {a, b}, dtype::float32, {b, 1}, dtype::bfloat16, {1, a});
  const std::int64_t count = 200'000 + random.below(100);
  add(batch_op::copy, {count}, dtype::bfloat16, {1}, dtype::float32, {1});
  add(batch_op::copy, {count}, dtype::float32, {1}, dtype::float16, {1});
  add(batch_op::accumulate, {count}, dtype::float32, {1}, dtype::float32, {1});
  add(batch_op::accumulate, {count}, dtype::bfloat16, {1}, dtype::bfloat16, {1});
  add(batch_op::copy, {count / 8, 3}, dtype::int16, {3, 1}, dtype::float64, {5, 1});
  return t.run();
}

std::string difference_in_float8_casts(kernel_backend& backend, device where) {
  trial t(backend, where, 0);
  const auto add = [&](dtype to, dtype from) {
    const cast_patterns::words patterns = cast_patterns::of(name(from));
    const std::vector<std::byte> bytes = cast_patterns::to_bytes(patterns, static_cast<std::size_t>(item_bytes(from)));
    const auto count = static_cast<std::int64_t>(patterns.size());
    piece p;
    p.to = t.add_slot({1}, to, false);
    t.view(p.to) = plain(t.random(), {count}, {1}, to);
    p.from = t.add_slot({1}, from, false);
    t.view(p.from) = plain(t.random(), {count}, {1}, from);
    std::memcpy(t.view(p.from).view.data, bytes.data(), bytes.size());
    t.add(p);
  };
  for (const dtype small : {dtype::float8_e4m3fn, dtype::float8_e5m2, dtype::float8_e4m3fnuz, dtype::float8_e5m2fnuz,
                            dtype::float8_e8m0fnu})
    for (const dtype wide : {dtype::float32, dtype::bfloat16, dtype::float16}) {
      add(small, wide);
      add(wide, small);
    }
  return t.run();
}

std::string wrong_refusals(kernel_backend& backend, device where) {
  batch_item item;
  item.to_type = dtype::float32;
  item.from_type = dtype::float4_e2m1fn_x2;  // converts to no other dtype
  const std::array<batch_item, 1> items{item};
  const auto made = backend.prepare(items, where);
  if (made) return "an item without a kernel is prepared";
  const std::string text = to_string(made.error());
  if (made.error().code != errc::unsupported) return "not errc::unsupported: " + text;
  for (const char* part : {"float32", "float4_e2m1fn_x2"})
    if (text.find(part) == std::string::npos) return "does not name " + std::string(part) + ": " + text;
  return {};
}

}  // namespace backend_property
