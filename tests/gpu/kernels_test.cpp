// SPDX-License-Identifier: Apache-2.0
// Every kernel against a loop over elements on the host: each operation and pair of dtypes, contiguous, misaligned,
// strided, transposed; and random batches of several phases. Prints errors and exits with status 1.
//   kernels_test [short]     short: a few batches of each kind, for tools that slow kernels down
#include "batch_trial.hpp"

#include <cstdio>
#include <cstring>
#include <utility>

using namespace gpu_suite;

namespace {

class maker {
 public:
  explicit maker(std::uint64_t seed) : random_(seed) {}

  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }

  /// Writes an element: any bits, or small numbers if a conversion must have a unique result.
  void write(unsigned char* at, dtype type, bool small) {
    auto* const element = reinterpret_cast<std::byte*>(at);
    if (small)
      return reference_elements::store(type, {static_cast<long double>(below(50)), static_cast<long double>(below(3))},
                                       element);
    for (int i = 0; i < reference_elements::width_bytes(type); ++i) at[i] = static_cast<unsigned char>(random_());
    if (type == dtype::boolean) *at &= 1;
  }

  enum class form { contiguous, misaligned, gaps, transposed, any };

  /// Adds an item whose source is the transpose of a matrix; with one row, it is contiguous on both sides.
  void add_matrix(trial& to, batch_op op, reduce_op reduction, dtype to_type, dtype from_type, std::int64_t rows,
                  std::int64_t columns) {
    batch_item item;
    item.op = op;
    item.reduction = reduction;
    item.to_type = to_type;
    item.from_type = from_type;
    const std::int64_t to_width = reference_elements::width_bytes(to_type);
    const std::int64_t from_width = reference_elements::width_bytes(from_type);
    if (rows > 1) item.loops[item.rank++] = {rows, columns * to_width, from_width};
    item.loops[item.rank++] = {columns, to_width, rows * from_width};
    add(to, item, static_cast<std::size_t>(rows * columns * to_width),
        static_cast<std::size_t>(rows * columns * from_width));
  }

  /// Adds an item with its own memory.
  void add(trial& to, batch_op op, reduce_op reduction, dtype to_type, dtype from_type, form shape,
           std::uint32_t phase) {
    batch_item item;
    item.op = op;
    item.reduction = reduction;
    item.to_type = to_type;
    item.from_type = from_type;
    item.phase = phase;
    item.factor = op == batch_op::scale ? 0.75 : 3.0;
    const std::int64_t to_width = reference_elements::width_bytes(to_type);
    const std::int64_t from_width = reference_elements::width_bytes(from_type);
    const bool flat = shape == form::contiguous || shape == form::misaligned;
    const int rank = flat ? 1 : shape == form::transposed ? 2 : static_cast<int>(below(5));
    item.rank = static_cast<std::uint8_t>(rank);
    const std::int64_t most = flat ? 600 : rank <= 2 ? 80 : 9;
    for (int d = 0; d < rank; ++d) item.loops[d].size = 2 + below(most);
    const std::int64_t to_pad = shape == form::contiguous ? 0 : below(17);
    const std::int64_t from_pad = shape == form::contiguous ? 0 : below(17);
    // Destinations: every loop encloses the previous one, so that no two elements overlap.
    std::int64_t step = to_width;
    for (int d = rank; d-- > 0;) {
      item.loops[d].to = step;
      step = step * item.loops[d].size + (flat || one_in(2) ? 0 : below(5) * (one_in(2) ? 1 : to_width));
    }
    const std::int64_t to_bytes = step + to_pad + below(20);
    item.to_offset = to_pad;
    // Sources: the same in another order, backwards, or repeated.
    std::vector<int> order(static_cast<std::size_t>(rank));
    for (int d = 0; d < rank; ++d) order[static_cast<std::size_t>(d)] = d;
    if (shape == form::transposed) std::reverse(order.begin(), order.end());
    if (shape == form::any) std::shuffle(order.begin(), order.end(), random_);
    std::int64_t from_step = from_width;
    item.from_offset = from_pad;
    for (int d = rank; d-- > 0;) {
      shardmesh::batch_loop& loop = item.loops[order[static_cast<std::size_t>(d)]];
      loop.from = from_step;
      from_step = from_step * loop.size + (flat || one_in(2) ? 0 : below(4) * from_width);
      if (shape != form::any || !one_in(6)) continue;
      if (one_in(2)) {
        loop.from = 0;
      } else {
        item.from_offset += loop.from * (loop.size - 1);
        loop.from = -loop.from;
      }
    }
    if (shape == form::any) sort_loops(item);
    add(to, item, static_cast<std::size_t>(to_bytes), static_cast<std::size_t>(from_step + from_pad + below(20)));
  }

 private:
  void add(trial& to, batch_item item, std::size_t to_bytes, std::size_t from_bytes) {
    bytes destination(to_bytes);
    bytes source(from_bytes);
    for (unsigned char& each : destination) each = static_cast<unsigned char>(random_());
    const bool to_integer =
        reference_elements::is_integral(item.to_type) && !reference_elements::is_integral(item.from_type);
    const bool small = to_integer || one_in(3);
    for_each_element(item, [&](std::int64_t t, std::int64_t f) {
      write(destination.data() + t, item.to_type, small);
      write(source.data() + f, item.from_type, small);
    });
    item.to_slot = static_cast<std::uint32_t>(to.to.size());
    item.from_slot = static_cast<std::uint32_t>(to.from.size());
    to.to.push_back(std::move(destination));
    to.from.push_back(std::move(source));
    to.items.push_back(item);
  }

  // Loops have the destination's smallest stride innermost, as from the builder of batches.
  static void sort_loops(batch_item& item) {
    for (int placed = 1; placed < item.rank; ++placed)
      for (int d = placed; d > 0 && item.loops[d - 1].to < item.loops[d].to; --d)
        std::swap(item.loops[d - 1], item.loops[d]);
  }

  std::mt19937_64 random_;
};

int failures = 0;
int batches = 0;
std::size_t items_tried = 0;

void check(const trial& what, const std::string& name) {
  ++batches;
  items_tried += what.items.size();
  const std::string problem = what.run();
  if (problem.empty()) return;
  if (++failures <= 20) std::printf("WRONG %s: %s\n", name.c_str(), problem.c_str());
}

constexpr reduce_op reductions[] = {reduce_op::sum, reduce_op::avg,  reduce_op::product, reduce_op::min,
                                    reduce_op::max, reduce_op::band, reduce_op::bor,     reduce_op::bxor};
constexpr maker::form forms[] = {maker::form::contiguous, maker::form::misaligned, maker::form::gaps,
                                 maker::form::transposed};

// One batch of all conversions to a dtype, one of all reductions, and one of the rest.
void every_kernel() {
  maker make(1);
  for (const dtype to : value_types())
    for (const maker::form form : forms) {
      const std::string name = std::string(name_of(to)) + " of form " + std::to_string(static_cast<int>(form));
      trial conversions, sums, others;
      for (const dtype from : value_types()) {
        make.add(conversions, batch_op::copy, reduce_op::none, to, from, form, 0);
        for (const reduce_op op : reductions) {
          if (!is_combinable(to, op)) continue;
          make.add(sums, batch_op::accumulate, op, to, from, form, 0);
          if (from == to) make.add(others, batch_op::fill, op, to, to, form, 0);
        }
      }
      if (!reference_elements::is_integral(to))
        for (const batch_op op : {batch_op::scale, batch_op::divide})
          make.add(others, op, reduce_op::none, to, to, form, 0);
      check(conversions, "conversions to " + name);
      if (!sums.items.empty()) check(sums, "reductions of " + name);
      if (!others.items.empty()) check(others, "fill and factors of " + name);
    }
}

void random_batches(int count) {
  const std::vector<dtype> types = value_types();
  for (int seed = 0; seed < count; ++seed) {
    maker make(static_cast<std::uint64_t>(seed) + 100);
    trial made;
    const std::int64_t items = 1 + make.below(40);
    for (std::int64_t i = 0; i < items; ++i) {
      const dtype to = types[static_cast<std::size_t>(make.below(static_cast<std::int64_t>(types.size())))];
      const dtype from =
          make.one_in(2) ? to : types[static_cast<std::size_t>(make.below(static_cast<std::int64_t>(types.size())))];
      const auto phase = static_cast<std::uint32_t>(make.below(3));
      const reduce_op op = reductions[make.below(8)];
      if (make.one_in(2) || !is_combinable(to, op))
        make.add(made, batch_op::copy, reduce_op::none, to, from, maker::form::any, phase);
      else if (make.one_in(4))
        make.add(made, batch_op::fill, op, to, to, maker::form::any, phase);
      else
        make.add(made, batch_op::accumulate, op, to, from, maker::form::any, phase);
    }
    check(made, "random batch " + std::to_string(seed));
  }
}

// Items that are split into many tiles, for dtype pairs with their own loops and for some without.
void many_tiles() {
  constexpr dtype pairs[][2] = {{dtype::bfloat16, dtype::float32}, {dtype::float32, dtype::bfloat16},
                                {dtype::float16, dtype::float32},  {dtype::float32, dtype::float32},
                                {dtype::float64, dtype::float64},  {dtype::int64, dtype::int64},
                                {dtype::int8, dtype::int32},       {dtype::complex64, dtype::complex64}};
  for (const auto& pair : pairs)
    for (const std::int64_t rows : {1, 130}) {
      maker make(static_cast<std::uint64_t>(rows));
      trial made;
      for (const batch_op op : {batch_op::copy, batch_op::accumulate}) {
        const reduce_op reduction = op == batch_op::copy ? reduce_op::none : reduce_op::sum;
        make.add_matrix(made, op, reduction, pair[0], pair[1], rows, rows == 1 ? 30000 : 170);
      }
      check(made, std::string("many tiles of ") + name_of(pair[0]) + " from " + name_of(pair[1]));
    }
}

// Later phases see the results of earlier ones, on the same bytes.
void phases() {
  for (int seed = 0; seed < 20; ++seed) {
    maker make(static_cast<std::uint64_t>(seed) + 900);
    trial made;
    make.add(made, batch_op::fill, reduce_op::sum, dtype::float32, dtype::float32, maker::form::gaps, 0);
    for (std::uint32_t phase = 1; phase < 4; ++phase) {
      batch_item again = made.items[0];
      again.op = phase == 2 ? batch_op::scale : batch_op::accumulate;
      again.reduction = phase == 2 ? reduce_op::none : reduce_op::sum;
      again.phase = phase;
      again.factor = 0.5;
      made.items.insert(made.items.begin(), again);  // its place in the table differs from the order of execution
    }
    check(made, "phases " + std::to_string(seed));
  }
}

// Runs of bytes that are longer than a tile, at every misalignment of both sides.
void long_runs() {
  for (std::int64_t to_at = 0; to_at < 16; to_at += 3)
    for (std::int64_t from_at = 0; from_at < 16; ++from_at) {
      maker make(static_cast<std::uint64_t>(to_at * 16 + from_at) + 2000);
      trial made;
      batch_item item;
      item.to_type = item.from_type = dtype::uint8;
      item.rank = 1;
      item.loops[0] = {100000 + make.below(50), 1, 1};
      item.to_offset = to_at;
      item.from_offset = from_at;
      made.items.push_back(item);
      made.to.emplace_back(100100);
      made.from.emplace_back(100100);
      for (unsigned char& each : made.from[0]) each = static_cast<unsigned char>(make.below(256));
      check(made, "a run from " + std::to_string(from_at) + " to " + std::to_string(to_at));
    }
}

void refusals() {
  batch_item item;
  item.to_type = dtype::bits8;
  item.from_type = dtype::float32;
  std::size_t refused = 7;
  void* table = nullptr;
  batch_item good;
  good.to_type = good.from_type = dtype::float32;
  const batch_item both[] = {good, item};
  if (shardmesh_cuda_table_create(both, 2, 0, &refused, &table) != SHARDMESH_CUDA_KERNELS_NO_KERNEL || refused != 1) {
    std::printf("WRONG: an item without a kernel is not refused\n");
    ++failures;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const bool is_short = count > 1 && std::strcmp(arguments[1], "short") == 0;
  if (shardmesh_cuda_kernels_version() != SHARDMESH_CUDA_KERNELS_VERSION ||
      shardmesh_cuda_kernels_item_bytes() != sizeof(batch_item)) {
    std::printf("WRONG: the kernels are of another version\n");
    return 1;
  }
  if (!is_short) {
    every_kernel();
    long_runs();
  }
  phases();
  many_tiles();
  random_batches(is_short ? 10 : 100);
  refusals();
  std::printf("kernels: %d batches, %zu items, %d wrong\n", batches, items_tried, failures);
  return failures == 0 ? 0 : 1;
}
