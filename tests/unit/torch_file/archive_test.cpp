// SPDX-License-Identifier: Apache-2.0
// Tests that torch.save archives are written byte for byte as PyTorch writes them, up to sizes that need ZIP64.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.torch_file;

using namespace shardmesh;
namespace data = checkpoint_data;

namespace {

std::vector<std::byte> slice(const std::vector<std::byte>& bytes, std::int64_t begin, std::int64_t count) {
  return {bytes.begin() + begin, bytes.begin() + begin + count};
}

// Replaces `what` everywhere by a text of equal length.
std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

std::string crc_of(std::string_view text) {
  const std::uint32_t crc = crc32_of(std::as_bytes(std::span(text)));
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(crc >> (8 * i) & 0xFF);
  return bytes;
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

TEST_CASE("an archive that torch.load refuses is read, with a warning that names the record") {
  const scratch_folder scratch;
  const std::filesystem::path file = scratch / "x.pt";
  const std::string_view pickle("\200\2}X\1\0\0\0aK\1s.", 13);  // {"a": 1}
  const std::vector<std::byte> bytes = torch_file::object_archive(std::as_bytes(std::span(pickle)));
  const std::string sound(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto warnings_of = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    const auto reader = torch_file::open(file).value();
    std::vector<std::string> warnings;
    for (const error& warning : reader->warnings()) warnings.push_back(to_string(warning));
    return warnings;
  };
  const auto of_version = [&](std::string_view version) {
    std::string content = replaced(sound, crc_of("3\n"), crc_of(version));
    const std::size_t at = content.find("3\n", content.find("archive/version"));
    content.replace(at, version.size(), version);
    return warnings_of(content);
  };
  CHECK(warnings_of(sound).empty());
  // torch.load of PyTorch 2.13 reads these versions, and refuses the others.
  for (const std::string_view version : {"1\n", "3 ", "9\n", "10", " 4", "\t5", "+6", "7x", "08"}) {
    INFO(version);
    CHECK(of_version(version).empty());
  }
  const std::string begin = file.string() + ": torch.load refuses the ", end = "; convert it to a new .pt file";
  for (const std::string_view version : {"0\n", "11", "99", "-3", "x\n", "0x", "\n\n", "+ "}) {
    INFO(version);
    CHECK(of_version(version) ==
          std::vector<std::string>{begin +
                                   "version in record \"archive/version\": expected a number from 1 to 10, found " +
                                   escaped(version) + end});
  }
  const std::string missing = begin + "archive: it has no record \"archive/version\"" + end;
  CHECK(warnings_of(replaced(sound, "archive/version", "archive/VERSION")).empty());
  CHECK(warnings_of(replaced(sound, "archive/version", "archive/versio_")) == std::vector<std::string>{missing});
  CHECK(warnings_of(replaced(sound, "archive/version", "outside/version")) ==
        std::vector<std::string>{
            missing, begin + "archive: 1 record is outside of its folder \"archive/\": outside/version" + end});
}

TEST_CASE("a main pickle beyond the limit of descriptions is refused, with the option that raises the limit") {
  const scratch_folder scratch;
  const std::filesystem::path file = scratch / "x.pt";
  const std::string_view pickle("\200\2}X\1\0\0\0aK\1s.", 13);  // {"a": 1}
  const std::vector<std::byte> bytes = torch_file::object_archive(std::as_bytes(std::span(pickle)));
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  open_options options;
  options.limits.description_bytes = 12;
  const auto refused = torch_file::open(file, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::bad_format);
  CHECK(to_string(refused.error()) == file.string() +
                                          ": record \"archive/data.pkl\" is too large: expected at most 12 bytes, "
                                          "found 13; raise the limit factor, if you trust the file");
  options.limits.description_bytes = 13;
  CHECK(torch_file::open(file, options));
}
