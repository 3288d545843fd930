// SPDX-License-Identifier: Apache-2.0
// Tests load_sharded: each rank's part of a checkpoint with another layout, against slices cut by hand. Also tests how
// many bytes that reads, and refusals. Elements are their own row-major index.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <safetensors_files.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.state_checkpoint;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// A matrix as a list of rows, so that cutting it is cutting lists.
using rows = std::vector<std::vector<std::int32_t>>;

rows matrix(std::size_t count, std::size_t width) {
  rows made(count, std::vector<std::int32_t>(width));
  for (std::size_t r = 0; r < count; ++r)
    std::iota(made[r].begin(), made[r].end(), static_cast<std::int32_t>(r * width));
  return made;
}

// torch.chunk: the i-th of `parts` pieces of ceil(size / parts).
template <class V>
std::vector<V> chunk(const std::vector<V>& all, std::size_t parts, std::size_t i) {
  const std::size_t step = (all.size() + parts - 1) / parts;
  const std::size_t begin = std::min(i * step, all.size()), end = std::min(begin + step, all.size());
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

rows columns(rows all, std::size_t parts, std::size_t i) {
  for (auto& row : all) row = chunk(row, parts, i);
  return all;
}

std::vector<std::int32_t> flat(const rows& all) {
  std::vector<std::int32_t> made;
  for (const auto& row : all) made.insert(made.end(), row.begin(), row.end());
  return made;
}

// "model.w" [7, 6], in three row chunks of three ranks; "model.b" [7]; "optim.state.w.exp_avg" [7, 6]; "step" 0-d.
struct saved {
  safetensors_files::temporary_folder scratch;
  rows w = matrix(7, 6);
  std::vector<std::int32_t> all = flat(w), b{0, 1, 2, 3, 4, 5, 6}, step{41};
  fs::path folder = scratch.path() / "step";

  saved() {
    const auto view = [](std::vector<std::int32_t>& values, std::int64_t first, const extents& sizes) {
      return tensor_view{
          reinterpret_cast<std::byte*>(values.data() + first), dtype::int32, {}, sizes, contiguous_strides(sizes)};
    };
    std::vector<save_tensor> tensors;
    for (const char* const name : {"w", "exp_avg"}) {
      const bool is_state = std::string(name) == "exp_avg";
      save_tensor one{is_state ? "optim.state.w.exp_avg" : "model.w",
                      is_state ? path{"optim", "state", "w", "exp_avg"} : path{"model", "w"},
                      {7, 6},
                      {}};
      for (std::int32_t r = 0; r < 3; ++r) {
        const std::int64_t first = 3 * r, count = std::min<std::int64_t>(3, 7 - first);
        one.parts.push_back({{{first, 0}, {count, 6}}, view(all, first * 6, {count, 6}), r});
      }
      tensors.push_back(std::move(one));
    }
    tensors.push_back({"model.b", {"model", "b"}, {7}, {{box::whole({7}), view(b, 0, {7}), 0}}});
    tensors.push_back({"step", {"step"}, {}, {{box::whole(extents{}), view(step, 0, {}), 0}}});
    REQUIRE(save(folder, tensors));
  }
};

std::vector<std::int32_t> values(const host_tensor& tensor) {
  const auto all = tensor.values<std::int32_t>();
  return {all.begin(), all.end()};
}

const dtensor<host_tensor>& at(const state_dict<host_tensor>& state, const path& where) {
  const auto* const found = state.find(where);
  INFO(to_string(where));
  REQUIRE(found);
  REQUIRE(found->dtensor());
  return *found->dtensor();
}

std::vector<placement_rule> rules(std::initializer_list<std::string_view> texts) {
  return parse_placement_rules(texts).value();
}

// Forwards to a reader, and counts the bytes that are read from chunks.
class counting_reader final : public checkpoint_reader {
 public:
  explicit counting_reader(std::unique_ptr<checkpoint_reader> inner) : inner_(std::move(inner)) {
    contents_ = inner_->contents();
    contents_.format = checkpoint_format::safetensors;  // a format whose objects are not opened during a load
    path_ = inner_->path();
  }
  std::int64_t bytes() const { return bytes_; }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    auto opened = inner_->open_chunk(tensor, chunk);
    if (!opened) return opened;
    auto made = std::make_shared<opened_chunk>(**opened);
    made->source = std::make_shared<counting_source>(made->source, bytes_);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }
  result<object_value> read_object(std::size_t index) override { return inner_->read_object(index); }
  result<std::vector<std::byte>> object_archive(std::size_t index) override { return inner_->object_archive(index); }

 private:
  class counting_source final : public byte_source {
   public:
    counting_source(std::shared_ptr<const byte_source> inner, std::atomic<std::int64_t>& bytes)
        : inner_(std::move(inner)), bytes_(bytes) {}
    std::int64_t size_bytes() const override { return inner_->size_bytes(); }
    std::string name() const override { return inner_->name(); }
    result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
      bytes_ += static_cast<std::int64_t>(out.size());
      return inner_->read(offset, out);
    }

   private:
    std::shared_ptr<const byte_source> inner_;
    std::atomic<std::int64_t>& bytes_;
  };
  std::unique_ptr<checkpoint_reader> inner_;
  std::atomic<std::int64_t> bytes_ = 0;
};

error refusal(const saved& s, const device_mesh& mesh, std::span<const placement_rule> wanted, std::int32_t rank) {
  const auto found = load_sharded<host_tensor>(s.folder, mesh, wanted, rank);
  REQUIRE_FALSE(found);
  return found.error();
}

}  // namespace

TEST_CASE("every rank of a mesh gets the part that the first matching rule gives it, whatever was saved") {
  const saved s;
  const device_mesh mesh = parse_mesh("dp=2,tp=2").value();
  const auto wanted = rules({R"(model\.w=S(0),S(1))", R"(.*\.b=R,S(0))"});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    const auto dp = static_cast<std::size_t>(rank / 2), tp = static_cast<std::size_t>(rank % 2);
    const auto found = load_sharded<host_tensor>(s.folder, mesh, wanted, rank);
    INFO((found ? "" : to_string(found.error())));
    REQUIRE(found);
    CHECK(found->size() == 4);
    const auto& w = at(*found, {"model", "w"});
    CHECK(to_string(w.layout().placements()) == "S(0), S(1)");
    CHECK(w.size() == extents{7, 6});
    CHECK(values(w.local()) == flat(columns(chunk(s.w, 2, dp), 2, tp)));
    // Optimizer state follows its parameter, and every rank has a scalar.
    CHECK(values(at(*found, {"optim", "state", "w", "exp_avg"}).local()) == values(w.local()));
    CHECK(values(at(*found, {"model", "b"}).local()) == chunk(s.b, 2, tp));
    CHECK(to_string(at(*found, {"step"}).layout().placements()) == "R, R");
    CHECK(values(at(*found, {"step"}).local()) == s.step);
  }
}

TEST_CASE("a rank whose part is empty has an empty tensor, and defaults are for keys without a rule") {
  const saved s;
  const device_mesh mesh = parse_mesh("8").value();
  for (const std::int32_t rank : {0, 6, 7}) {
    const auto found =
        load_sharded<host_tensor>(s.folder, mesh, rules({"step=R"}), rank,
                                  {.default_placements = {placement::shard(0)}, .optimizer_follows = false});
    REQUIRE(found);
    CHECK(values(at(*found, {"model", "w"}).local()) == flat(chunk(s.w, 8, static_cast<std::size_t>(rank))));
    CHECK(at(*found, {"model", "b"}).local().sizes() == extents{rank == 7 ? 0 : 1});
  }
}

TEST_CASE("a strided shard gets its parts in PyTorch's order") {
  const saved s;
  // SS(0, 2) over dp after S(0) over tp: rows are cut by tp first, each half then by dp.
  const device_mesh mesh = parse_mesh("dp=2,tp=2").value();
  const auto found = load_sharded<host_tensor>(s.folder, mesh, rules({R"(model\.w=SS(0,2),S(0))", ".*=R,R"}), 1);
  REQUIRE(found);
  CHECK(values(at(*found, {"model", "w"}).local()) == flat(chunk(chunk(s.w, 2, 1), 2, 0)));
}

TEST_CASE("a rank of a fused tensor gets its part of every segment, one after the other") {
  const saved s;
  const device_mesh mesh = parse_mesh("2").value();
  // Segments of 3, 0, 3, and 1 rows; segments of 4 and 2 columns.
  const rows first(s.w.begin(), s.w.begin() + 3), second(s.w.begin() + 3, s.w.begin() + 6), third(1, s.w.back());
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    const auto part = static_cast<std::size_t>(rank);
    const auto found = load_sharded<host_tensor>(s.folder, mesh, rules({R"(model\.w=SG(0,3:0:3:1))"}), rank);
    INFO((found ? "" : to_string(found.error())));
    REQUIRE(found);
    rows expected;
    for (const rows& segment : {first, second, third}) {
      const rows mine = chunk(segment, 2, part);
      expected.insert(expected.end(), mine.begin(), mine.end());
    }
    CHECK(values(at(*found, {"model", "w"}).local()) == flat(expected));
    CHECK(values(at(*found, {"optim", "state", "w", "exp_avg"}).local()) == flat(expected));

    const auto by_columns = load_sharded<host_tensor>(s.folder, mesh, rules({R"(model\.w=SG(-1,4:2))"}), rank);
    REQUIRE(by_columns);
    rows wide = s.w;
    for (auto& row : wide) row = {row[2 * part], row[2 * part + 1], row[4 + part]};
    CHECK(values(at(*by_columns, {"model", "w"}).local()) == flat(wide));
  }
}

TEST_CASE("of tensors that are cut by rows, each rank reads the bytes that it holds and no others") {
  const saved s;
  const device_mesh mesh = parse_mesh("3").value();
  std::int64_t all = 0;
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    counting_reader reader(open_checkpoint(s.folder).value());
    const auto found = load_sharded<host_tensor>(reader, mesh, rules({"model.*=S(0)", "step=R"}), rank);
    REQUIRE(found);
    std::int64_t held = 0;
    for (const auto& leaf : found->leaves()) held += static_cast<std::int64_t>(leaf.dtensor()->local().bytes().size());
    CHECK(reader.bytes() == held);
    all += held;
  }
  CHECK(all == 4 * (2 * 42 + 7 + 3));
  // A selection reads less.
  counting_reader reader(open_checkpoint(s.folder).value());
  const auto found = load_sharded<host_tensor>(reader, mesh, rules({"model.b=S(0)"}), 2,
                                               {.selection = {.only = {key_pattern::exactly("model.b")}}});
  REQUIRE(found);
  CHECK(found->size() == 1);
  CHECK(reader.bytes() == 4);
}

TEST_CASE("a rank outside of the mesh, rules that do not fit and partial sums are refused, naming key and rank") {
  const saved s;
  const device_mesh mesh = parse_mesh("2").value();
  error why = refusal(s, mesh, {}, 2);
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.ranks == std::vector<std::int32_t>{2});
  CHECK(why.file == s.folder.string());
  why = refusal(s, mesh, rules({"modle.w=S(0)"}), 0);
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.message == "rule 'modle.w' matches no tensor");
  CHECK(why.hint == "did you mean model.w? patterns match whole keys; pass allow_unused to ignore this");
  why = refusal(s, mesh, rules({"model.*=S(1)"}), 0);
  CHECK(why.message == "rule 'model.*=S(1)' names a dimension that 1 tensor lacks: model.b");
  why = refusal(s, mesh, rules({"model.w=SG(0,4:2)"}), 0);
  CHECK(
      why.message ==
      "rule 'model.w=SG(0,4:2)' has segments that do not fit 2 tensors: model.w (the segments of SG(0,4:2) add up to "
      "6, dimension 0 has size 7), optim.state.w.exp_avg (the segments of SG(0,4:2) add up to 6, dimension 0 has size "
      "7)");
  why = refusal(s, mesh, rules({"model.*=S(0),R"}), 0);
  CHECK(why.message == "rule 'model.*' has 2 placements for a mesh of 1 dimension");
  why = refusal(s, mesh, rules({"model.w=P(sum)"}), 0);
  CHECK(why.code == errc::unsupported);
  CHECK(why.key == "model.w");
  CHECK(load_sharded<host_tensor>(s.scratch.path() / "nowhere", mesh, {}, 0).error().code == errc::io);
}

TEST_CASE("a dtensor that there is already is filled with this rank's part") {
  const saved s;
  const auto reader = open_checkpoint(s.folder).value();
  const layout cut = layout::make(parse_mesh("4").value(), {placement::shard(1)}, {7, 6}).value();
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    auto to =
        dtensor<host_tensor>::make(cut, rank, host_tensor::make(dtype::int64, cut.local_shape(rank)).value()).value();
    const auto loaded = load_into(*reader, "model.w", to);
    REQUIRE(loaded);
    const auto expected = flat(columns(s.w, 4, static_cast<std::size_t>(rank)));
    const loaded_cast cast{"model.w", dtype::int32, dtype::int64};
    CHECK(loaded->casts == (expected.empty() ? std::vector<loaded_cast>{} : std::vector{cast}));  // rank 3 has nothing
    const auto got = to.local().values<std::int64_t>();
    CHECK(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
    CHECK(loaded->bytes_read == static_cast<std::int64_t>(8 * expected.size()));
  }
  const layout other = layout::make(parse_mesh("2").value(), {placement::shard(0)}, {6, 7}).value();
  auto to = dtensor<host_tensor>::make(other, 1, host_tensor::make(dtype::int32, {3, 7}).value()).value();
  const error why = load_into(*reader, "model.w", to).error();
  CHECK(why.code == errc::shape_mismatch);
  CHECK(why.key == "model.w");
  CHECK(why.expected == "[7, 6]");
  CHECK(why.found == "[6, 7]");
  CHECK(why.ranks == std::vector<std::int32_t>{1});
  CHECK(load_into(*reader, "model.v", to).error().hint == "did you mean model.w?");
  auto nothing = dtensor<host_tensor>::make(cut, 9, std::nullopt).value();
  const auto loaded = load_into(*reader, "model.w", nothing);
  REQUIRE(loaded);
  CHECK(loaded->bytes_read == 0);
}
