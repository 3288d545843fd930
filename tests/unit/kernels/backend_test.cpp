// SPDX-License-Identifier: Apache-2.0
// Compares random batches on the backends of this module with the reference: the host's own, and the bodies for devices
// (include/shardmesh/kernels). Teams are loops here, so GPU code is tested without a GPU.
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/device_tile.hpp>
#include <shardmesh/kernels/host_tile.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

import shardmesh.kernels;
import shardmesh.test.backend_property;

using namespace shardmesh;

namespace {

struct tiled final : prepared_batch {
  std::size_t items() const override { return tables.items.size(); }
  kernel_bodies::tile_tables tables;
};

// Runs the tables and bodies of a launch tile by tile; memory and order are the host's. The last tile runs first,
// because no order is promised.
template <class Team>
class by_tiles final : public kernel_backend {
 public:
  explicit by_tiles(const kernel_bodies::tile_sizes& sizes) : sizes_(sizes) {}
  std::string_view name() const override { return "tiles"; }
  bool reaches(device where) const override { return host_->reaches(where); }
  result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) override {
    return host_->allocate(size_bytes, where, stream);
  }
  result<device_buffer> allocate_staging(std::int64_t size_bytes, device where) override {
    return host_->allocate_staging(size_bytes, where);
  }
  result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device) override {
    auto made = std::make_unique<tiled>();
    made->tables = kernel_bodies::cut_all(items.data(), items.size(), sizes_);
    return std::unique_ptr<prepared_batch>(std::move(made));
  }
  result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref) override {
    const auto& tables = static_cast<tiled&>(batch).tables;
    alignas(16) static std::byte scratch[kernel_bodies::scratch_bytes];
    for (std::size_t p = 0; p < tables.phase_count(); ++p) {
      const kernel_bodies::tiled_phase phase = tables.phase(p);
      for (std::int64_t tile = phase.tiles(); tile-- > 0;) {
        const std::int64_t found = phase.item_of(tile);
        const auto& item = phase.items[found];
        std::byte* const to = bases.to[item.to_slot] + item.to_offset;
        const std::byte* const from =
            kernel_bodies::reads(item.op) ? bases.from[item.from_slot] + item.from_offset : to;
        const std::int64_t within = tile - (phase.first_tile[found] - phase.first_tile[0]);
        if constexpr (Team::is_alone)
          kernel_bodies::run_tile(Team{}, item, within, to, from);
        else
          kernel_bodies::run_tile(Team(64, scratch), item, within, to, from);
      }
    }
    return {};
  }
  result<void> copy_across(std::byte* to, device to_device, const std::byte* from, device from_device,
                           std::int64_t size_bytes, stream_ref stream) override {
    return host_->copy_across(to, to_device, from, from_device, size_bytes, stream);
  }
  result<std::unique_ptr<device_event>> record(device where, stream_ref stream) override {
    return host_->record(where, stream);
  }

 private:
  kernel_bodies::tile_sizes sizes_;
  std::shared_ptr<kernel_backend> host_ = host_backend();
};

void check(kernel_backend& backend) {
  for (const std::uint64_t seed : random_seed::seeds(10, 5)) {
    INFO("SHARDMESH_SEED=" << seed);
    REQUIRE(backend_property::difference(backend, {}, seed) == "");
  }
  for (const std::uint64_t seed : random_seed::seeds(1, 3)) {
    INFO("large, SHARDMESH_SEED=" << seed);
    REQUIRE(backend_property::difference_when_large(backend, {}, seed) == "");
  }
}

}  // namespace

TEST_CASE("the host's backend runs random batches as the reference does") {
  check(*host_backend());
}

TEST_CASE("tiles run by one thread of a host leave what the reference leaves") {
  by_tiles<kernel_bodies::single_thread> large(kernel_bodies::host_tiles);
  check(large);
  by_tiles<kernel_bodies::single_thread> small({512, 8, 8, 5, 64, 100});  // so small that everything is cut
  check(small);
}

TEST_CASE("tiles run by one thread of a host cast to and from 8-bit floats as the reference does") {
  by_tiles<kernel_bodies::single_thread> tiles(kernel_bodies::host_tiles);
  CHECK(backend_property::difference_in_float8_casts(tiles, {}) == "");
}

TEST_CASE("tiles run by teams of a device, as loops, leave what the reference leaves") {
  by_tiles<kernel_bodies::emulated_team> as_on_devices(kernel_bodies::device_tiles);
  check(as_on_devices);
  by_tiles<kernel_bodies::emulated_team> small({512, 8, 8, 5, 16, 1 << 20});
  check(small);
}
