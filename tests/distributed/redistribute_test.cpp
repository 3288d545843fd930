// SPDX-License-Identifier: Apache-2.0
// Random transfers over real ranks against a brute-force model: what every element must be is computed from who holds
// which term of which cell; every byte beside the bound fragments must stay as it was; bytes sent are counted.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fabric.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <random_views.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

class dice {
 public:
  explicit dice(std::uint64_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }
  std::mt19937_64& engine() { return random_; }

 private:
  std::mt19937_64 random_;
};

// --- random distributions ---

device_mesh random_mesh(dice& roll, std::int32_t world) {
  std::vector<std::int64_t> sizes;
  std::int64_t ranks = 1;
  for (std::int64_t m = 1 + roll.below(4); m > 0; --m) {
    const std::int64_t size = 1 + roll.below(world / ranks);
    ranks *= size;
    sizes.push_back(size);
  }
  // Any of the world's ranks, in any order: meshes may be disjoint, overlap or be equal.
  std::vector<std::int32_t> numbering;
  if (roll.below(2) == 0) {
    for (std::int32_t r = 0; r < world; ++r) numbering.push_back(r);
    std::shuffle(numbering.begin(), numbering.end(), roll.engine());
    numbering.resize(static_cast<std::size_t>(ranks));
  }
  return device_mesh::make(sizes, {}, numbering).value();
}

distribution random_layout(dice& roll, const extents& shape, std::int32_t world, reduce_op op) {
  const device_mesh mesh = random_mesh(roll, world);
  std::vector<placement> placements;
  for (std::size_t m = 0; m < mesh.rank(); ++m) {
    const std::int64_t kind = roll.below(5);
    const auto dim = [&] { return static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(shape.rank()))); };
    if (op != reduce_op::none && (kind == 0 || m == 0))
      placements.push_back(placement::partial(op));
    else if (kind == 1 || shape.rank() == 0)
      placements.push_back(placement::replicate());
    else if (kind == 2)
      placements.push_back(placement::strided_shard(dim(), 1 + roll.below(4)));
    else
      placements.push_back(placement::shard(dim()));
  }
  return distribute(layout::make(mesh, placements, shape,
                                 roll.below(3) == 0 ? split_rule::balanced() : split_rule::torch_chunk())
                        .value())
      .value();
}

// A grid of boxes, each at any owners, in slots of their own with room before them. As a destination some boxes may be
// wanted by nobody.
distribution random_list(dice& roll, const extents& shape, std::int32_t world, bool complete) {
  std::vector<std::vector<std::int64_t>> cuts;
  for (const std::int64_t size : shape) {
    std::vector<std::int64_t> at{0, size};
    for (std::int64_t n = roll.below(3); n > 0; --n) at.push_back(roll.below(size + 1));
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    if (at.size() == 1) at.push_back(at.front());  // a size of 0
    cuts.push_back(std::move(at));
  }
  std::vector<fragment> fragments;
  std::vector<std::int32_t> slots(static_cast<std::size_t>(world), 0);
  extents pieces;
  for (const auto& at : cuts) pieces.push_back(static_cast<std::int64_t>(at.size()) - 1);
  random_views::for_each_index(pieces, [&](const extents& cell) {
    fragment f;
    for (std::size_t d = 0; d < cell.rank(); ++d) {
      const auto i = static_cast<std::size_t>(cell[d]);
      f.where.offsets.push_back(cuts[d][i]);
      f.where.sizes.push_back(cuts[d][i + 1] - cuts[d][i]);
      f.local_offsets.push_back(roll.below(3));
    }
    std::vector<std::int32_t> ranks;
    for (std::int32_t r = 0; r < world; ++r) ranks.push_back(r);
    std::shuffle(ranks.begin(), ranks.end(), roll.engine());
    const std::int64_t holders = (complete ? 1 : 0) + roll.below(3);
    for (std::int64_t h = 0; h < std::min<std::int64_t>(holders, world); ++h) {
      f.owner = ranks[static_cast<std::size_t>(h)];
      f.slot = slots[static_cast<std::size_t>(f.owner)]++;
      fragments.push_back(f);
    }
  });
  return distribution::from_fragments(shape, fragments, owner_space::ranks).value();
}

struct tensor_case {
  extents shape;
  tensor_transfer transfer;
  std::vector<fragment> held;  // all fragments of the source
};

std::vector<fragment> all_fragments(const distribution& d) {
  std::vector<fragment> all;
  d.for_each_owner([&](owner_id o) { d.fragments_of(o, [&](const fragment& f) { return all.push_back(f), true; }); });
  return all;
}

tensor_case random_case(dice& roll, std::int32_t world) {
  tensor_case c;
  for (std::int64_t d = roll.below(5); d > 0; --d)
    c.shape.push_back(roll.pick<std::int64_t>({1, 2, 3, 4, 5, 7, 8, 11}));
  if (roll.below(12) == 0 && c.shape.rank() > 0) c.shape[0] = 0;
  while (box::whole(c.shape).volume() > 3000) c.shape[c.shape.rank() - 1] = 1, c.shape[0] = 1, c.shape[1] = 2;
  const auto reduction = [&] {
    if (roll.below(2) == 0) return reduce_op::none;
    return roll.pick({reduce_op::sum, reduce_op::avg, reduce_op::min, reduce_op::max, reduce_op::product});
  };
  const auto side = [&](bool complete) {
    if (roll.below(4) == 0) return random_list(roll, c.shape, world, complete);
    return random_layout(roll, c.shape, world, reduction());
  };
  c.transfer.from = side(true);
  c.transfer.to = roll.below(6) == 0 ? c.transfer.from : side(false);
  const bool averages = c.transfer.from.reduction() == reduce_op::avg || c.transfer.to.reduction() == reduce_op::avg;
  const auto type = [&] {
    return averages ? roll.pick({dtype::float32, dtype::float64, dtype::bfloat16, dtype::float16})
                    : roll.pick({dtype::float32, dtype::float64, dtype::bfloat16, dtype::float16, dtype::int8,
                                 dtype::int32, dtype::int64});
  };
  c.transfer.from_type = type();
  c.transfer.to_type = roll.below(2) == 0 ? c.transfer.from_type : type();
  c.held = all_fragments(c.transfer.from);
  return c;
}

// --- values ---

std::int64_t cell_number(const extents& shape, const extents& index) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < shape.rank(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

extents sum(extents a, const extents& b) {
  for (std::size_t d = 0; d < a.rank(); ++d) a[d] += b[d];
  return a;
}

// Small whole numbers: every dtype holds them and their sums exactly.
double term_value(const tensor_case& c, std::int64_t cell, std::int32_t term, int run) {
  if (c.transfer.from.reduction() == reduce_op::product) {
    const double sign = (cell + term + run) % 2 == 0 ? 1 : -1;
    return term == 0 ? sign * static_cast<double>(1 + cell % 3) : sign;
  }
  return static_cast<double>((cell * 31 + term * 17 + run * 5) % 13 - 6);
}

tensor_view scalar(const void* data, dtype type) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), type, {}, {}, {}};
}

// The value after being stored as `type`.
double as(dtype type, double value) {
  std::byte stored[16];
  double back = 0;
  if (!copy(scalar(stored, type), scalar(&value, dtype::float64)) ||
      !copy(scalar(&back, dtype::float64), scalar(stored, type)))
    return -12345;
  return back;
}

double combined(reduce_op op, double a, double b) {
  switch (op) {
    case reduce_op::product:
      return a * b;
    case reduce_op::min:
      return std::min(a, b);
    case reduce_op::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// The identity of a reduction in a dtype, read back as a double.
double identity(reduce_op op, dtype type) {
  if (op == reduce_op::sum || op == reduce_op::avg) return 0;
  if (op == reduce_op::product) return 1;
  double least = 0, most = 0;
  switch (type) {
    case dtype::int8:
      least = -128, most = 127;
      break;
    case dtype::int32:
      least = -2147483648.0, most = 2147483647.0;
      break;
    case dtype::int64:
      least = -9223372036854775808.0, most = 9223372036854775808.0;  // as a double
      break;
    default:
      least = -std::numeric_limits<double>::infinity(), most = -least;
  }
  return op == reduce_op::min ? most : least;
}

std::int64_t divisor_of(const distribution& d) {
  return d.divisor() != 0 ? d.divisor() : d.terms();
}

bool terms_travel(const tensor_transfer& t) {
  return t.from.reduction() != reduce_op::none && t.from.reduction() == t.to.reduction() &&
         t.from.terms() == t.to.terms() && t.from.divisor() == t.to.divisor();
}

// What a destination fragment of `term` must hold at a cell.
double expected(const tensor_case& c, std::int64_t cell, std::int32_t term, int run) {
  const tensor_transfer& t = c.transfer;
  const auto held = [&](std::int32_t k) { return as(t.from_type, term_value(c, cell, k, run)); };
  if (terms_travel(t)) return as(t.to_type, held(term));
  if (term != 0) return identity(t.to.reduction(), t.to_type);
  double value = held(0);
  if (t.from.reduction() != reduce_op::none) {
    for (std::int32_t k = 1; k < t.from.terms(); ++k) value = combined(t.from.reduction(), value, held(k));
    if (t.from.reduction() == reduce_op::avg) value /= static_cast<double>(divisor_of(t.from));
    // Sums are made in float32 or wider, then rounded to the source's dtype, then cast.
    if (t.from_type != dtype::float64) value = as(dtype::float32, value);
    value = as(t.from_type, value);
  }
  value = as(t.to_type, value);
  if (t.to.reduction() == reduce_op::avg) value = as(t.to_type, value * static_cast<double>(divisor_of(t.to)));
  return value;
}

// --- a rank's memory ---

struct side_memory {
  std::vector<random_views::owned_view> slots;
  tensor_binding binding;
};

side_memory make_side(dice& roll, const distribution& d, owner_id rank, dtype type) {
  std::vector<extents> sizes;
  d.fragments_of(rank, [&](const fragment& f) {
    if (sizes.size() <= static_cast<std::size_t>(f.slot))
      sizes.resize(static_cast<std::size_t>(f.slot) + 1, extents::filled(f.where.rank(), 0));
    extents& size = sizes[static_cast<std::size_t>(f.slot)];
    for (std::size_t i = 0; i < size.rank(); ++i) size[i] = std::max(size[i], f.local_offsets[i] + f.where.sizes[i]);
    return true;
  });
  side_memory made;
  for (extents& size : sizes) {
    const bool plain = roll.below(2) == 0;
    if (!plain)
      for (std::int64_t& one : size) one += roll.below(3);
    const auto item = static_cast<std::size_t>(item_bytes(type));
    made.slots.push_back(random_views::make(roll.engine(), size, type, item, false));
    if (plain) {
      made.slots.back().memory.resize(static_cast<std::size_t>(box::whole(size).volume()) * item + 1);
      made.slots.back().view.data = made.slots.back().memory.data();
      made.slots.back().view.strides = contiguous_strides(size);
    }
    made.binding.slots.push_back(made.slots.back().view);
  }
  return made;
}

const random_views::owned_view& slot_of(const side_memory& side, const fragment& f) {
  return side.slots[static_cast<std::size_t>(f.slot)];
}

void fill(const side_memory& side, const tensor_case& c, owner_id rank, int run) {
  c.transfer.from.fragments_of(rank, [&](const fragment& f) {
    random_views::for_each_index(f.where.sizes, [&](const extents& i) {
      const double value = term_value(c, cell_number(c.shape, sum(i, f.where.offsets)), f.term, run);
      static_cast<void>(copy(scalar(slot_of(side, f).at(sum(i, f.local_offsets)), c.transfer.from_type),
                             scalar(&value, dtype::float64)));
    });
    return true;
  });
}

// Everything that is wrong, or "".
std::string check(const side_memory& side, const std::vector<std::vector<std::byte>>& before, const tensor_case& c,
                  owner_id rank, int run) {
  std::string wrong;
  std::vector<std::vector<bool>> bound;
  for (const auto& slot : side.slots) bound.emplace_back(slot.memory.size(), false);
  c.transfer.to.fragments_of(rank, [&](const fragment& f) {
    const random_views::owned_view& slot = slot_of(side, f);
    random_views::for_each_index(f.where.sizes, [&](const extents& i) {
      const std::byte* const element = slot.at(sum(i, f.local_offsets));
      double found = 0;
      static_cast<void>(copy(scalar(&found, dtype::float64), scalar(element, c.transfer.to_type)));
      const std::int64_t cell = cell_number(c.shape, sum(i, f.where.offsets));
      const double wanted = expected(c, cell, f.term, run);
      if (found != wanted && wrong.empty())
        wrong = "cell " + std::to_string(cell) + " of term " + std::to_string(f.term) + " in slot " +
                std::to_string(f.slot) + " is " + std::to_string(found) + " instead of " + std::to_string(wanted);
      const auto first = static_cast<std::size_t>(element - slot.memory.data());
      for (std::size_t b = 0; b < slot.item; ++b) bound[static_cast<std::size_t>(f.slot)][first + b] = true;
    });
    return true;
  });
  for (std::size_t s = 0; s < side.slots.size(); ++s)
    for (std::size_t b = 0; b < before[s].size(); ++b)
      if (!bound[s][b] && before[s][b] != side.slots[s].memory[b] && wrong.empty())
        wrong = "byte " + std::to_string(b) + " beside the fragments of slot " + std::to_string(s) + " changed";
  return wrong;
}

// --- the run ---

// Counts, and hides that the ranks share memory.
struct counting {
  any_communicator* inner = nullptr;
  std::int64_t* sent_bytes = nullptr;
  std::int64_t* gathers = nullptr;
  std::int32_t rank() const { return inner->rank(); }
  std::int32_t size() const { return inner->size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    ++*gathers;
    return inner->all_gather(bytes, o);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& o) {
    for (const outgoing& m : sends) *sent_bytes += static_cast<std::int64_t>(m.bytes.size());
    return inner->start_exchange(sends, receives, o);
  }
  void abort(const error& e) { inner->abort(e); }
};

std::string describe(const tensor_case& c) {
  return to_string(c.shape) + " " + std::string(name(c.transfer.from_type)) + " " +
         std::string(to_string(c.transfer.from.reduction())) + " of " + std::to_string(c.transfer.from.terms()) +
         " -> " + std::string(name(c.transfer.to_type)) + " " + std::string(to_string(c.transfer.to.reduction())) +
         " of " + std::to_string(c.transfer.to.terms());
}

enum class path { lending, messages, counted };

// One rank's part of a scenario: two runs of the same cases.
std::string play(any_communicator& world, const std::vector<tensor_case>& cases, const plan_options& options,
                 std::uint64_t seed, path how) {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  for (const tensor_case& c : cases) {
    transfers.push_back(c.transfer);
    keys.push_back("w" + std::to_string(keys.size()));
  }
  const auto planned = plan(transfers, options);
  if (!planned) return "no plan: " + to_string(planned.cause());

  std::int64_t sent = 0, gathers = 0, moved = 0;
  any_communicator counted(counting{&world, &sent, &gathers});
  any_communicator& comm = how == path::counted ? counted : world;
  run_options run_with{.progress = [&](std::int64_t bytes) { moved += bytes; }, .in_place = how != path::messages};
  auto made = executor::make(*planned, comm, keys, run_with);
  if (!made) return "no executor: " + to_string(made.cause());
  if (options.memory_bytes > 0 && made->peak_bytes() > options.memory_bytes)
    return std::to_string(made->peak_bytes()) + " bytes are more than the budget";
  const std::int64_t gathers_to_make = gathers;

  dice own(seed * 64 + static_cast<std::uint64_t>(world.rank()));
  const owner_id me = world.rank();
  std::vector<side_memory> from, to;
  std::vector<tensor_binding> from_bindings, to_bindings;
  for (const tensor_case& c : cases) {
    from.push_back(make_side(own, c.transfer.from, me, c.transfer.from_type));
    to.push_back(make_side(own, c.transfer.to, me, c.transfer.to_type));
    from_bindings.push_back(from.back().binding);
    to_bindings.push_back(to.back().binding);
  }
  for (int run = 0; run < 2; ++run) {
    std::vector<std::vector<std::vector<std::byte>>> sources, destinations;
    for (std::size_t t = 0; t < cases.size(); ++t) {
      fill(from[t], cases[t], me, run);
      sources.emplace_back();
      destinations.emplace_back();
      for (const auto& slot : from[t].slots) sources.back().push_back(slot.memory);
      for (const auto& slot : to[t].slots) destinations.back().push_back(slot.memory);
    }
    if (run == 0) {
      if (auto done = made->run(from_bindings, to_bindings); !done) return "no run: " + to_string(done.cause());
    } else {
      auto started = made->start(from_bindings, to_bindings);
      if (!started) return "no start: " + to_string(started.cause());
      if (me % 2 == 0)
        while (!started->done()) {
        }
      if (auto done = started->wait(); !done) return "no wait: " + to_string(done.cause());
    }
    for (std::size_t t = 0; t < cases.size(); ++t) {
      std::string wrong = check(to[t], destinations[t], cases[t], me, run);
      for (std::size_t s = 0; s < from[t].slots.size(); ++s)
        if (from[t].slots[s].memory != sources[t][s]) wrong = "the source changed";
      if (!wrong.empty()) return keys[t] + " (" + describe(cases[t]) + ") in run " + std::to_string(run) + ": " + wrong;
    }
  }

  if (made->scratch_bytes() > made->peak_bytes())
    return "took " + std::to_string(made->scratch_bytes()) + " bytes instead of at most " +
           std::to_string(made->peak_bytes());

  // Bytes that were sent, over all ranks.
  if (planned->bytes_moved() != planned->lower_bound()) return "the plan moves more than it must";
  if (gathers != gathers_to_make) return "a run gathered";
  if (how == path::counted) {
    std::vector<std::byte> mine(sizeof sent);
    std::memcpy(mine.data(), &sent, sizeof sent);
    const auto all = world.all_gather(mine, {});
    if (!all) return to_string(all.cause());
    std::int64_t total = 0;
    for (const auto& part : *all) {
      std::int64_t one = 0;
      std::memcpy(&one, part.data(), sizeof one);
      total += one;
    }
    if (total != 2 * planned->lower_bound())
      return "two runs sent " + std::to_string(total) + " bytes, the lower bound is " +
             std::to_string(planned->lower_bound()) + " each";
  }
  return {};
}

// A scenario that all ranks make from the same seed.
std::string play_random(any_communicator& world, std::uint64_t seed, path how) {
  dice common(seed);
  std::vector<tensor_case> cases;
  for (std::int64_t n = 1 + common.below(common.below(4) == 0 ? 12 : 3); n > 0; --n)
    cases.push_back(random_case(common, world.size()));
  plan_options options{.allow_narrowing = true, .reduce_grain_bytes = common.pick<std::int64_t>({1, 64, 4096})};
  // From one that cuts tensors of a few hundred bytes to one that cuts nothing.
  if (common.below(2) == 0) options.memory_bytes = common.pick<std::int64_t>({1'100, 2'000, 20'000});
  return play(world, cases, options, seed, how);
}

// PyTorch's cases of redistribution whose meshes have as many ranks as `world`, or fewer.
layout golden_layout(const nlohmann::json& mesh, const nlohmann::json& shape, const nlohmann::json& specs) {
  const auto numbers = [](const nlohmann::json& list) {
    extents made;
    for (const auto& one : list) made.push_back(one.get<std::int64_t>());
    return made;
  };
  std::vector<placement> placements;
  for (const auto& p : specs) {
    const auto type = p.at("type").get<std::string>();
    if (type == "Shard")
      placements.push_back(placement::shard(p.at("dim").get<std::int32_t>()));
    else if (type == "StridedShard")
      placements.push_back(
          placement::strided_shard(p.at("dim").get<std::int32_t>(), p.at("split_factor").get<std::int64_t>()));
    else if (type == "Partial")
      placements.push_back(placement::partial(parse_reduce_op(p.value("reduce_op", "sum")).value()));
    else
      placements.push_back(placement::replicate());
  }
  return layout::make(device_mesh::make(numbers(mesh)).value(), placements, numbers(shape)).value();
}

std::vector<tensor_case> golden_cases(std::int32_t world) {
  std::ifstream file(SHARDMESH_TEST_DATA "/golden/redistribute.json");
  const auto all = nlohmann::json::parse(file);
  std::vector<tensor_case> cases;
  for (const char* const list : {"same_mesh", "other_mesh"})
    for (const auto& c : all[list]) {
      const bool same = c.contains("mesh");
      const layout from = golden_layout(c[same ? "mesh" : "src_mesh"], c["shape"], c["src"]);
      const layout to = golden_layout(c[same ? "mesh" : "dst_mesh"], c["shape"], c["dst"]);
      if (std::max(from.mesh().rank_limit(), to.mesh().rank_limit()) > world) continue;
      const dtype type = parse_dtype(c.value("dtype", "float32")).value();
      tensor_case made{from.shape(), {distribute(from).value(), distribute(to).value(), type, type}, {}};
      made.held = all_fragments(made.transfer.from);
      cases.push_back(std::move(made));
    }
  return cases;
}

void play_everywhere(path how, int rounds) {
  const watchdog dog(std::chrono::seconds(1200));
  INFO("SHARDMESH_SEED=" << fabric::seed());
  std::mt19937_64 seeds(fabric::seed() + static_cast<std::uint64_t>(how));
  for (const fabric::kind& kind : fabric::all())
    for (int round = 0; round < rounds; ++round) {
      const std::int32_t size = kind.sizes[static_cast<std::size_t>(round) % kind.sizes.size()];
      const std::uint64_t seed = seeds();
      INFO(kind.name << " with " << size << " ranks, scenario " << seed);
      REQUIRE(kind.run(size, [&](void* comm) {
        return play_random(*static_cast<any_communicator*>(comm), seed, how);
      }) == "");
    }
}

}  // namespace

TEST_CASE("random transfers put every element where it belongs and touch nothing else, in shared memory") {
  play_everywhere(path::lending, fabric::rounds(400));
}

TEST_CASE("random transfers put every element where it belongs and touch nothing else, with messages") {
  play_everywhere(path::messages, fabric::rounds(400));
}

TEST_CASE("random transfers send exactly the least number of bytes") {
  play_everywhere(path::counted, fabric::rounds(300));
}

TEST_CASE("every one of PyTorch's redistribution cases puts every element where it belongs, at the least bytes") {
  const watchdog dog(std::chrono::seconds(600));
  for (const fabric::kind& kind : fabric::all()) {
    const std::int32_t size = *std::max_element(kind.sizes.begin(), kind.sizes.end());
    const std::vector<tensor_case> cases = golden_cases(size);
    if (size >= 8) CHECK(cases.size() == 300);
    for (const path how : {path::lending, path::messages, path::counted})
      for (const std::int64_t budget : {0, 3'000}) {
        INFO(kind.name << " with " << size << " ranks and a budget of " << budget);
        CHECK(kind.run(size, [&](void* comm) {
          // One by one, as PyTorch moves them; and all in one plan.
          for (const tensor_case& c : cases)
            if (std::string wrong = play(*static_cast<any_communicator*>(comm), {c}, {.memory_bytes = budget}, 1, how);
                !wrong.empty())
              return describe(c) + ": " + wrong;
          return play(*static_cast<any_communicator*>(comm), cases, {.memory_bytes = budget}, 2, how);
        }) == "");
      }
  }
}
