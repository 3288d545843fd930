// SPDX-License-Identifier: Apache-2.0
// Some ranks save and others load: random tensors on random layouts, against a brute-force model in which every byte of
// a tensor is a function of its index. Over every communicator.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <fabric.hpp>
#include <filesystem>
#include <golden.hpp>
#include <indices.hpp>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>
import shardmesh.collective_checkpoint;
import shardmesh.state;
import shardmesh.torch_file;
import shardmesh.test.holdings;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

using holdings::boxes_of_ranks;
using holdings::holding;
using holdings::objects;
using holdings::random_boxes;
using holdings::random_models;
using holdings::tensor_model;
using saving::text_of;

}  // namespace

TEST_CASE("what some ranks save, other numbers of ranks load on other layouts, with every way of sharing reads") {
  const watchdog dog(500s);
  std::uint64_t number = 0;
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t savers : kind.sizes) {
      if (savers > 4 && savers != 8) continue;
      for (int round = 0; round < fabric::rounds(6); ++round) {
        const std::uint64_t seed = fabric::seed() + 1000 * ++number;
        INFO(kind.name << ", " << savers << " savers, SHARDMESH_SEED=" << fabric::seed() << " round " << number);
        const fabric::rank_folder folder(std::to_string(number));
        const fs::path checkpoint = folder.path / "step";
        const std::string saved = kind.run(savers, [&](void* handle) -> std::string {
          auto& comm = *static_cast<any_communicator*>(handle);
          dice roll(seed);
          const std::vector<tensor_model> models = random_models(roll);
          holding mine;
          for (std::size_t t = 0; t < models.size(); ++t)
            mine.add(t, models[t], random_boxes(roll, models[t].shape, savers)[static_cast<std::size_t>(comm.rank())],
                     true);
          if (comm.rank() % 2 == 0) mine.state.objects = objects();  // some ranks have none
          std::reverse(mine.state.objects.begin(), mine.state.objects.end());
          const auto report = save(checkpoint, mine.state, comm, {.within = 60s});
          if (!report) return text_of(report.error().problems());
          if (report->tensors != static_cast<std::int64_t>(models.size())) return "another number of tensors";
          if (report->objects != 6) return "another number of objects";
          return {};
        });
        REQUIRE(saved == "");
        auto reader = open_checkpoint(checkpoint).value();
        REQUIRE(text_of(verify(*reader).value().problems) == "");
        for (const std::int32_t loaders : kind.sizes) {
          if (loaders > 4 && loaders != 7) continue;
          INFO(loaders << " loaders");
          const std::string loaded = kind.run(loaders, [&](void* handle) -> std::string {
            auto& comm = *static_cast<any_communicator*>(handle);
            dice roll(seed);
            const std::vector<tensor_model> models = random_models(roll);
            for (const read_sharing sharing : {read_sharing::group, read_sharing::each_rank, read_sharing::automatic}) {
              dice other(seed + 7 + static_cast<std::uint64_t>(loaders));
              holding mine;
              std::vector<std::size_t> numbers;
              for (std::size_t t = 0; t < models.size(); ++t) {
                boxes_of_ranks boxes = random_boxes(other, models[t].shape, loaders);
                if (other.below(4) == 0) boxes.back() = {box::whole(models[t].shape)};  // overlaps other ranks' boxes
                if (other.below(5) == 0) continue;                                      // wanted by no rank
                mine.add(t, models[t], boxes[static_cast<std::size_t>(comm.rank())], false);
                numbers.push_back(t);
              }
              if (comm.rank() != 0) {
                mine.state.objects = objects();
                for (local_state_object& object : mine.state.objects) object.leaves = {plain_value()}, object.form = {};
              }
              const auto report = load(checkpoint, mine.state, comm, {.within = 60s, .sharing = sharing});
              if (!report) return text_of(report.error().problems());
              if (std::string wrong = mine.differences(numbers); !wrong.empty()) return wrong;
              if (comm.rank() != 0 && mine.state.objects != objects()) return "the objects differ";
              if (sharing == read_sharing::each_rank && report->bytes_received != 0) return "bytes were exchanged";
            }
            return {};
          });
          REQUIRE(loaded == "");
        }
      }
    }
}

TEST_CASE("replicas are written once and spread evenly") {
  const fabric::rank_folder folder(std::to_string(1'000'001));
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      INFO(kind.name << ", " << ranks << " ranks");
      const fs::path checkpoint = folder.path / ("of-" + std::to_string(ranks));
      const std::string wrong = kind.run(ranks, [&](void* handle) -> std::string {
        auto& comm = *static_cast<any_communicator*>(handle);
        holding mine;
        for (std::int64_t t = 0; t < 8 * ranks; ++t) {
          const tensor_model model{{"w", t}, {16, 8}, dtype::float32};
          const box whole = box::whole(model.shape);
          mine.add(static_cast<std::size_t>(t), model, {&whole, 1}, true);
        }
        const auto report = save(checkpoint, mine.state, comm, {.overwrite = true, .within = 60s});
        if (!report) return text_of(report.error().problems());
        if (report->bytes != 8 * ranks * 16 * 8 * 4) return std::to_string(report->bytes) + " bytes";
        return report->files == ranks ? "" : std::to_string(report->files) + " files";
      });
      REQUIRE(wrong == "");
      auto reader = open_checkpoint(checkpoint).value();
      std::vector<std::int64_t> chunks(static_cast<std::size_t>(ranks), 0);
      for (const tensor_entry& tensor : reader->contents().tensors) {
        REQUIRE(tensor.chunk_count == 1);
        const auto file = static_cast<std::size_t>(
            reader->contents().chunk_places[static_cast<std::size_t>(tensor.first_chunk)].file);
        ++chunks[static_cast<std::size_t>(rank_of_file(reader->contents().files[file]).value())];
      }
      CHECK(chunks == std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 8));
    }
}

TEST_CASE("what a group reads is read once, and large boxes are shared without being asked") {
  const fabric::rank_folder folder(std::to_string(1'000'002));
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      const fs::path checkpoint = folder.path / ("of-" + std::to_string(ranks));
      std::vector<std::int64_t> read(static_cast<std::size_t>(ranks), 0);
      const std::string wrong = kind.run(ranks, [&](void* handle) -> std::string {
        auto& comm = *static_cast<any_communicator*>(handle);
        holding mine;
        const tensor_model large{{"large"}, {256, 128}, dtype::float32}, small{{"small"}, {4}, dtype::float32};
        const box large_box = box::whole(large.shape), small_box = box::whole(small.shape);
        mine.add(0, large, {&large_box, 1}, true);
        mine.add(1, small, {&small_box, 1}, true);
        const auto saved = save(checkpoint, mine.state, comm, {.overwrite = true, .within = 60s});
        if (!saved) return text_of(saved.error().problems());
        const auto report = load(checkpoint, mine.state, comm, {.within = 60s});
        if (!report) return text_of(report.error().problems());
        const std::int64_t total = report->bytes_read + report->bytes_received;
        if (total != 256 * 128 * 4 + 16) return std::to_string(total) + " bytes";
        const bool reads = report->bytes_read > 16;
        const auto all = comm.all_gather(std::vector<std::byte>(reads ? 1 : 0), {.within = 60s});
        std::size_t readers = 0;
        for (const auto& one : all.value()) readers += one.size();
        return readers == 1 ? "" : std::to_string(readers) + " ranks read the large tensor";
      });
      CHECK(wrong == "");
    }
}

TEST_CASE("state dicts are saved and loaded through what they hold") {
  const fabric::rank_folder folder(std::to_string(1'000'003));
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t ranks : kind.sizes) {
      const fs::path checkpoint = folder.path / ("of-" + std::to_string(ranks));
      const std::string wrong = kind.run(ranks, [&](void* handle) -> std::string {
        auto& comm = *static_cast<any_communicator*>(handle);
        const std::int64_t sizes[] = {ranks};
        const device_mesh mesh = device_mesh::make(sizes).value();
        const layout rows = layout::make(mesh, {placement::shard(0)}, {7, 3}).value();
        const layout strided = layout::make(mesh, {placement::strided_shard(0, 2)}, {9}).value();
        const layout fused = layout::make(mesh, {placement::shard_segments(0, {5, 0, 4})}, {9}).value();
        const auto make = [&](bool filled) {
          state_dict<host_tensor> dict;
          const auto local = [&](const layout& laid) {
            host_tensor tensor = host_tensor::make(dtype::int64, laid.local_shape(comm.rank())).value();
            auto* const values = reinterpret_cast<std::int64_t*>(tensor.bytes().data());
            for (const placed_box& placed : laid.boxes(comm.rank()))
              indices::for_each(placed.where.sizes, [&](const extents& at) {
                std::int64_t global = 0, inside = 0;
                for (std::size_t d = 0; d < at.rank(); ++d) {
                  global = global * 10 + placed.where.offsets[d] + at[d];
                  inside = inside * laid.local_shape(comm.rank())[d] + placed.local_offsets[d] + at[d];
                }
                values[inside] = filled ? global + 1 : 0;
              });
            return tensor;
          };
          for (const auto& [name, laid] :
               {std::pair("rows", &rows), std::pair("strided", &strided), std::pair("fused", &fused)})
            dict.set({"model", name}, dtensor<host_tensor>::make(*laid, comm.rank(), local(*laid)).value()).value();
          dict.set({"optim", "betas", 0}, filled ? 0.9 : 0.0).value();
          dict.set({"optim", "betas", 1}, filled ? 0.99 : 0.0).value();
          dict.set({"step"}, filled ? 17 : 0).value();
          return dict;
        };
        state_dict<host_tensor> saved = make(true), loaded = make(false);
        const auto held = local_view(saved);
        if (!held) return to_string(held.error());
        const auto report = save(checkpoint, *held, comm, {.overwrite = true, .within = 60s});
        if (!report) return text_of(report.error().problems());
        auto wanted = local_view(loaded).value();
        const auto got = load(checkpoint, wanted, comm, {.within = 60s});
        if (!got) return text_of(got.error().problems());
        set_objects(loaded, wanted.objects).value();
        return equal(saved, loaded, {}) ? "" : "the state dicts differ";
      });
      CHECK(wrong == "");
    }
}

TEST_CASE("PyTorch's own checkpoints are loaded by any number of ranks, on layouts that they were not saved for") {
  const watchdog dog(500s);
  std::vector<fs::path> checkpoints;
  for (const auto& entry : fs::directory_iterator(golden::folder()))
    if (fs::exists(entry.path() / "checkpoint" / ".metadata") && entry.path().filename() != "options_xor")
      checkpoints.push_back(entry.path() / "checkpoint");
  std::sort(checkpoints.begin(), checkpoints.end());
  REQUIRE(checkpoints.size() > 10);
  for (const fs::path& checkpoint : checkpoints) {
    // Each tensor's contents, read by one process; golden.py compares those with PyTorch.
    auto reader = open_checkpoint(checkpoint).value();
    if (!reader->problems().empty()) continue;
    reader->identify_opaque_tensors();
    std::vector<const tensor_entry*> entries;
    std::vector<host_tensor> wholes;
    for (const tensor_entry& tensor : reader->contents().tensors) {
      auto whole = tensor.opaque_type.empty() ? load_tensor(*reader, tensor.key)
                                              : result<host_tensor>(fail(errc::unsupported, tensor.opaque_type));
      if (!whole) continue;
      entries.push_back(&tensor);
      wholes.push_back(*std::move(whole));
    }
    for (const fabric::kind& kind : fabric::all())
      for (const std::int32_t ranks : kind.sizes) {
        if (ranks == 1 || (ranks > 3 && ranks != 8)) continue;
        INFO(checkpoint.string() << " on " << ranks << " ranks over " << kind.name
                                 << ", SHARDMESH_SEED=" << fabric::seed());
        const std::string wrong = kind.run(ranks, [&](void* handle) -> std::string {
          auto& comm = *static_cast<any_communicator*>(handle);
          dice roll(fabric::seed());
          std::deque<host_tensor> memory;
          local_state wanted;
          for (const tensor_entry* const entry : entries) {
            boxes_of_ranks boxes = random_boxes(roll, entry->shape, ranks);
            const path where = entry->where.empty() ? path{entry->key} : entry->where;
            local_state_tensor held{where, entry->shape, entry->type, {}};
            if (bits(entry->type) % 8 != 0) continue;
            for (const box& part : boxes[static_cast<std::size_t>(comm.rank())]) {
              memory.push_back(host_tensor::make(entry->type, part.sizes).value());
              held.parts.push_back({part, adapter<host_tensor>::view(memory.back())});
            }
            wanted.tensors.push_back(std::move(held));
          }
          for (const object_entry& object : reader->contents().objects)
            wanted.objects.push_back({object.where.empty() ? path{object.key} : object.where, {}, {plain_value()}});
          const auto report = load(checkpoint, wanted, comm, {.within = 60s, .sharing = read_sharing::group});
          if (!report) return text_of(report.error().problems());
          std::size_t next = 0;
          for (std::size_t t = 0; t < entries.size(); ++t) {
            if (bits(entries[t]->type) % 8 != 0) continue;
            const local_state_tensor& held = wanted.tensors[next++];
            for (const local_part& part : held.parts) {
              host_tensor expected = host_tensor::make(held.type, part.where.sizes).value();
              copy(adapter<host_tensor>::view(expected), subview(adapter<host_tensor>::view(wholes[t]), part.where))
                  .value();
              if (!std::equal(expected.bytes().begin(), expected.bytes().end(), part.memory.data))
                return entries[t]->key + " differs in " + to_string(part.where);
            }
          }
          for (std::size_t i = 0; i < wanted.objects.size(); ++i) {
            const auto archive = reader->object_archive(i);
            if (!archive) return to_string(archive.error());
            // Compares archives, so that NaN equals NaN.
            if (torch_file::archive_of_object(torch_file::object_of_archive(*archive).value()).value() !=
                torch_file::archive_of_object(wanted.objects[i]).value())
              return reader->contents().objects[i].key + " differs";
          }
          return {};
        });
        CHECK(wrong == "");
      }
  }
}
