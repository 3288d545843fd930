// SPDX-License-Identifier: Apache-2.0
// Random and golden transfers over real ranks, against a brute-force model (shardmesh.test.transfers). Every element is
// checked, every byte outside the bound fragments must stay unchanged, and sent bytes are counted.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <fabric.hpp>
#include <indices.hpp>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <random_views.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.fake_device;
import shardmesh.test.transfers;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

using indices::row_major;
using indices::sum;
using transfers::scalar;
using transfers::tensor_case;

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
  made.binding.room = slot_room::larger;
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
    indices::for_each(f.where.sizes, [&](const extents& i) {
      const double value = transfers::term_value(c, row_major(sum(i, f.where.offsets), c.shape), f.term, run);
      static_cast<void>(copy(scalar(slot_of(side, f).at(sum(i, f.local_offsets)), c.transfer.from_type),
                             scalar(&value, dtype::float64)));
    });
    return true;
  });
}

// All differences, or "".
std::string check(const side_memory& side, const std::vector<std::vector<std::byte>>& before, const tensor_case& c,
                  owner_id rank, int run) {
  std::string wrong;
  std::vector<std::vector<bool>> bound;
  for (const auto& slot : side.slots) bound.emplace_back(slot.memory.size(), false);
  c.transfer.to.fragments_of(rank, [&](const fragment& f) {
    const random_views::owned_view& slot = slot_of(side, f);
    indices::for_each(f.where.sizes, [&](const extents& i) {
      const std::byte* const element = slot.at(sum(i, f.local_offsets));
      double found = 0;
      static_cast<void>(copy(scalar(&found, dtype::float64), scalar(element, c.transfer.to_type)));
      const std::int64_t cell = row_major(sum(i, f.where.offsets), c.shape);
      const double wanted = transfers::expected(c, cell, f.term, run);
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

// Counts sent bytes and gathers, and hides that the ranks share memory.
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
  device memory() const { return inner->memory(); }
  bool is_ordered() const { return inner->is_ordered(); }
};

enum class path {
  lending,
  messages,
  counted,
  mirrored,   // tensors on a device, messages in host memory
  on_device,  // messages are on the device as well
  batched,    // host memory, tables of work
};

// The backend of a path, until the scope ends. Every rank has its own.
std::unique_ptr<backend_scope> backends_of(path how) {
  if (how == path::mirrored || how == path::on_device)
    return std::make_unique<backend_scope>(std::make_shared<test::fake_backend>(device_type::cuda));
  if (how == path::batched)
    return std::make_unique<backend_scope>(std::make_shared<test::fake_backend>(device_type::cpu));
  return nullptr;
}

// Runs one rank's part of a scenario: two runs of the same cases.
std::string play(any_communicator& world, const std::vector<tensor_case>& cases, const plan_options& options,
                 std::uint64_t seed, path how) {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  for (const tensor_case& c : cases) {
    transfers.push_back(c.transfer);
    keys.push_back("w" + std::to_string(keys.size()));
  }
  const auto planned = plan(transfers, options);
  if (!planned) return "no plan: " + to_string(planned.error());

  std::int64_t sent = 0, gathers = 0, moved = 0;
  any_communicator counted(counting{&world, &sent, &gathers});
  const device gpu{device_type::cuda, static_cast<std::int16_t>(world.rank())};
  any_communicator moving_there(test::device_communicator{&world, gpu});
  any_communicator& comm = how == path::counted ? counted : how == path::on_device ? moving_there : world;
  run_options run_with{.progress = [&](std::int64_t bytes) { moved += bytes; }, .in_place = how != path::messages};
  auto made = executor::make(*planned, comm, keys, run_with);
  if (!made) return "no executor: " + to_string(made.error());
  if (options.memory_bytes > 0 && made->peak_bytes() > options.memory_bytes)
    return std::to_string(made->peak_bytes()) + " bytes are more than the budget";
  const std::int64_t gathers_to_make = gathers;

  dice own(seed * 64 + static_cast<std::uint64_t>(world.rank()));
  const owner_id me = world.rank();
  std::vector<side_memory> from, to;
  std::vector<const_tensor_binding> from_bindings;
  std::vector<tensor_binding> to_bindings;
  for (const tensor_case& c : cases) {
    from.push_back(make_side(own, c.transfer.from, me, c.transfer.from_type));
    to.push_back(make_side(own, c.transfer.to, me, c.transfer.to_type));
    if (how == path::mirrored || how == path::on_device)
      for (side_memory* side : {&from.back(), &to.back()})
        for (tensor_view& slot : side->binding.slots)
          if (own.below(4) != 0) slot.where = gpu;
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
      if (auto done = made->run(from_bindings, to_bindings); !done) return "no run: " + to_string(done.error());
    } else {
      auto started = made->start(from_bindings, to_bindings);
      if (!started) return "no start: " + to_string(started.error());
      if (me % 2 == 0)
        while (!started->done()) std::this_thread::yield();  // there are fewer cores than ranks
      if (auto done = started->wait(); !done) return "no wait: " + to_string(done.error());
    }
    for (std::size_t t = 0; t < cases.size(); ++t) {
      std::string wrong = check(to[t], destinations[t], cases[t], me, run);
      for (std::size_t s = 0; s < from[t].slots.size(); ++s)
        if (from[t].slots[s].memory != sources[t][s]) wrong = "the source changed";
      if (!wrong.empty())
        return keys[t] + " (" + transfers::describe(cases[t]) + ") in run " + std::to_string(run) + ": " + wrong;
    }
  }

  if (made->scratch_bytes() > made->peak_bytes())
    return "took " + std::to_string(made->scratch_bytes()) + " bytes instead of at most " +
           std::to_string(made->peak_bytes());

  // The bytes sent, over all ranks.
  if (planned->bytes_moved() != planned->lower_bound()) return "the plan moves more than it must";
  if (gathers != gathers_to_make) return "a run gathered";
  if (how == path::counted) {
    std::vector<std::byte> mine(sizeof sent);
    std::memcpy(mine.data(), &sent, sizeof sent);
    const auto all = world.all_gather(mine, {});
    if (!all) return to_string(all.error());
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

// Runs a scenario that all ranks make from the same seed.
std::string play_random(any_communicator& world, std::uint64_t seed, path how) {
  dice common(seed);
  std::vector<tensor_case> cases;
  for (std::int64_t n = 1 + common.below(common.below(4) == 0 ? 12 : 3); n > 0; --n)
    cases.push_back(transfers::random_case(common, world.size()));
  plan_options options{.allow_narrowing = true, .reduce_grain_bytes = common.pick<std::int64_t>({1, 64, 4096})};
  // Budgets from one that splits tensors of a few hundred bytes to one that splits nothing.
  if (common.below(2) == 0) options.memory_bytes = common.pick<std::int64_t>({1'100, 2'000, 20'000});
  return play(world, cases, options, seed, how);
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
        const auto scopes = backends_of(how);
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

TEST_CASE("random transfers between devices put every element where it belongs, with messages in host memory",
          "[pretended_devices]") {
  play_everywhere(path::mirrored, fabric::rounds(200));
}

TEST_CASE("random transfers between devices put every element where it belongs, with messages on the devices",
          "[pretended_devices]") {
  play_everywhere(path::on_device, fabric::rounds(300));
}

TEST_CASE("random transfers as tables of work put every element where it belongs and touch nothing else") {
  play_everywhere(path::batched, fabric::rounds(300));
}

TEST_CASE("every one of PyTorch's redistribution cases puts every element where it belongs, at the least bytes") {
  const watchdog dog(std::chrono::seconds(600));
  for (const fabric::kind& kind : fabric::all()) {
    const std::int32_t size = *std::max_element(kind.sizes.begin(), kind.sizes.end());
    const std::vector<tensor_case> cases = transfers::golden_cases(size);
    if (size >= 8) CHECK(cases.size() == 300);
    // In the ordinary run, each case is moved alone in a third of the ways (paths and budgets); with all others,
    // always.
    const std::size_t share = random_seed::runs_are_long() ? 1 : 3;
    std::size_t way = 0;
    for (const path how : kind.is_on_devices ? std::vector{path::messages, path::counted}
                                             : std::vector{path::lending, path::messages, path::counted, path::mirrored,
                                                           path::on_device, path::batched})
      for (const std::int64_t budget : {0, 3'000}) {
        INFO(kind.name << " with " << size << " ranks and a budget of " << budget);
        CHECK(kind.run(size, [&](void* comm) {
          const auto scopes = backends_of(how);
          // One by one, as PyTorch moves them; then all in one plan.
          for (std::size_t i = (share - way % share) % share; i < cases.size(); i += share)
            if (std::string wrong =
                    play(*static_cast<any_communicator*>(comm), {cases[i]}, {.memory_bytes = budget}, 1, how);
                !wrong.empty())
              return transfers::describe(cases[i]) + ": " + wrong;
          return play(*static_cast<any_communicator*>(comm), cases, {.memory_bytes = budget}, 2, how);
        }) == "");
        ++way;
      }
  }
}
