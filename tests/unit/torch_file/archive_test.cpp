// SPDX-License-Identifier: Apache-2.0
// Tests that torch.save archives are written byte for byte as PyTorch writes them, up to sizes that need ZIP64.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

import shardmesh.torch_file;

using namespace shardmesh;
namespace data = checkpoint_data;

namespace {

std::vector<std::byte> slice(const std::vector<std::byte>& bytes, std::int64_t begin, std::int64_t count) {
  return {bytes.begin() + begin, bytes.begin() + begin + count};
}

}  // namespace

TEST_CASE("the archive around a contiguous tensor is byte for byte PyTorch's, of every dtype") {
  std::set<std::string> dtypes;
  int compared = 0;
  for (const data::item& where : data::items()) {
    if (where.is_object) continue;
    const auto file = data::read(where.file);
    const auto bytes = slice(file, where.offset, where.length);
    const memory_source source(bytes, where.file.string());
    const auto item = torch_file::item::open(source).value();
    const torch_file::tensor& tensor = item.tensors()[0];
    const torch_file::storage& storage = item.storages()[0];
    // PyTorch also keeps other strides, which have another data.pkl.
    if (tensor.strides != contiguous_strides(tensor.sizes) || tensor.requires_grad || tensor.conj || tensor.neg ||
        tensor.storage_offset != 0 || tensor.python_type != "torch.Tensor")
      continue;
    INFO(where.case_name << " " << where.fqn);
    const auto layout = torch_file::tensor_archive::make(tensor.type, tensor.sizes);
    if (!layout) FAIL(to_string(layout.error()));
    if (layout->data_bytes() != storage.size_bytes) continue;
    REQUIRE(layout->size_bytes() == where.length);
    const auto prefix_bytes = static_cast<std::int64_t>(layout->prefix().size());
    CHECK(std::vector<std::byte>(layout->prefix().begin(), layout->prefix().end()) == slice(bytes, 0, prefix_bytes));
    const auto content = slice(bytes, prefix_bytes, layout->data_bytes());
    CHECK(layout->suffix(crc32_of(content)) ==
          slice(bytes, prefix_bytes + layout->data_bytes(), layout->suffix_bytes()));
    dtypes.insert(std::string(name(tensor.type)));
    ++compared;
  }
  CHECK(compared > 800);
  CHECK(dtypes.size() >= 20);
}

TEST_CASE("the archive around an object is byte for byte PyTorch's") {
  int compared = 0;
  for (const data::item& where : data::items()) {
    if (!where.is_object) continue;
    const auto file = data::read(where.file);
    const auto bytes = slice(file, where.offset, where.length);
    const memory_source source(bytes, where.file.string());
    const auto directory = zip_directory::read(source).value();
    if (directory.find("archive/data/0") != nullptr) continue;
    INFO(where.case_name << " " << where.fqn);
    const auto data_pkl = read_record(source, *directory.find("archive/data.pkl"), 1 << 20).value();
    CHECK(torch_file::object_archive(data_pkl) == bytes);
    ++compared;
  }
  CHECK(compared > 100);
}

TEST_CASE("a tensor of five dimensions, and one without elements, read back as they were written") {
  for (const extents& sizes : {extents{2, 3, 1, 5, 7}, extents{0, 4}, extents{}, extents{70000, 300}}) {
    const auto layout = torch_file::tensor_archive::make(dtype::uint8, sizes).value();
    std::vector<std::byte> bytes(layout.prefix().begin(), layout.prefix().end());
    bytes.resize(bytes.size() + static_cast<std::size_t>(layout.data_bytes()), std::byte{7});
    const auto suffix = layout.suffix(crc32_of(std::span(bytes).subspan(layout.prefix().size())));
    bytes.insert(bytes.end(), suffix.begin(), suffix.end());
    CHECK(static_cast<std::int64_t>(bytes.size()) == layout.size_bytes());
    const memory_source source(bytes, "made");
    const auto item = torch_file::item::open(source).value();
    CHECK(item.tensors()[0].sizes == sizes);
    CHECK(item.tensors()[0].type == dtype::uint8);
    CHECK(item.tensors()[0].strides == contiguous_strides(sizes));
    CHECK(read_tensor(source, item, 0, 1 << 30).value() ==
          std::vector<std::byte>(static_cast<std::size_t>(layout.data_bytes()), std::byte{7}));
  }
}

TEST_CASE("sizes of 4 GiB and more are written in ZIP64 fields, which the directory reader understands") {
  // Only the bytes around the data exist here; the source returns zeros for the data.
  class sparse final : public byte_source {
   public:
    explicit sparse(const torch_file::tensor_archive& layout)
        : prefix_(layout.prefix().begin(), layout.prefix().end()),
          suffix_(layout.suffix(0x12345678)),
          size_(layout.size_bytes()) {}
    std::int64_t size_bytes() const override { return size_; }
    std::string name() const override { return "sparse"; }
    result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
      const auto suffix_at = size_ - static_cast<std::int64_t>(suffix_.size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::int64_t at = offset + static_cast<std::int64_t>(i);
        out[i] = at < static_cast<std::int64_t>(prefix_.size()) ? prefix_[static_cast<std::size_t>(at)]
                 : at >= suffix_at                              ? suffix_[static_cast<std::size_t>(at - suffix_at)]
                                                                : std::byte{0};
      }
      return {};
    }

   private:
    std::vector<std::byte> prefix_, suffix_;
    std::int64_t size_;
  };
  for (const std::int64_t count : {std::int64_t{0xfffffffe}, std::int64_t{0xffffffff}, std::int64_t{1} << 36}) {
    const auto layout = torch_file::tensor_archive::make(dtype::uint8, {count}).value();
    const sparse source(layout);
    const auto item = torch_file::item::open(source);
    if (!item) FAIL(to_string(item.error()));
    CHECK(item->storages()[0].size_bytes == count);
    CHECK(item->storages()[0].offset == static_cast<std::int64_t>(layout.prefix().size()));
    CHECK(item->storages()[0].offset % 64 == 0);
    CHECK(item->storages()[0].crc32 == 0x12345678);
  }
}

TEST_CASE("the archive around 2^32 - 1 bytes, the first size that needs ZIP64, is byte for byte PyTorch's") {
  // tests/data/archive: the bytes that torch.save wrote before and after the data.
  const auto folder = std::filesystem::path(SHARDMESH_TEST_DATA) / "archive";
  const auto prefix = data::read(folder / "uint8_4294967295_prefix.bin");
  const auto suffix = data::read(folder / "uint8_4294967295_suffix.bin");
  REQUIRE(suffix.size() > 8);
  std::uint32_t crc32 = 0;
  std::memcpy(&crc32, suffix.data() + 4, 4);  // in the data descriptor
  const auto layout = torch_file::tensor_archive::make(dtype::uint8, {0xffffffff}).value();
  CHECK(std::vector<std::byte>(layout.prefix().begin(), layout.prefix().end()) == prefix);
  CHECK(layout.suffix(crc32) == suffix);
}

TEST_CASE("a dtype that PyTorch lacks, or a size that does not fit, cannot be written") {
  CHECK(torch_file::tensor_archive::make(dtype::float6_e2m3, {4}).error().code == errc::unsupported);
  CHECK(torch_file::tensor_archive::make(dtype::float32, {std::int64_t{1} << 62}).error().code == errc::overflow);
}
