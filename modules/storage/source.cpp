// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.storage;

import :answers;
import :descriptors;
import :file_ahead;
import :listed_versions;
import :regular_file;

namespace shardmesh {
namespace {

result<void> check_range(const byte_source& source, std::int64_t offset, std::size_t length) {
  const std::int64_t size = source.size_bytes();
  if (offset < 0 || offset > size || static_cast<std::int64_t>(length) > size - offset)
    return fail(errc::out_of_bounds, fmt::format("bytes {} to {} lie outside of the file's {} bytes", offset,
                                                 offset + static_cast<std::int64_t>(length), size))
        .with_file(source.name());
  return {};
}

}  // namespace

result<void> byte_source::read_ranges(std::span<const source_range> ranges) const {
  for (const source_range& one : ranges) SHARDMESH_TRY(read(one.offset, one.out));
  return {};
}

result<void> memory_source::read(std::int64_t offset, std::span<std::byte> out) const {
  SHARDMESH_TRY(check_range(*this, offset, out.size()));
  std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
  return {};
}

owned_source::owned_source(std::vector<std::byte> bytes, std::string name)
    : owned_source(std::make_shared<const std::vector<std::byte>>(std::move(bytes)), std::move(name)) {}

owned_source::owned_source(std::shared_ptr<const std::vector<std::byte>> bytes, std::string name)
    : bytes_(std::move(bytes)), view_(*bytes_, std::move(name)) {}

result<void> owned_source::read(std::int64_t offset, std::span<std::byte> out) const {
  return view_.read(offset, out);
}

result<void> section_source::read(std::int64_t offset, std::span<std::byte> out) const {
  SHARDMESH_TRY(check_range(*this, offset, out.size()));
  return whole_.read(offset_ + offset, out);
}

result<void> section_source::read_ranges(std::span<const source_range> ranges) const {
  std::vector<source_range> in_whole;
  in_whole.reserve(ranges.size());
  for (const source_range& one : ranges) {
    SHARDMESH_TRY(check_range(*this, one.offset, one.out.size()));
    in_whole.push_back({offset_ + one.offset, one.out});
  }
  return whole_.read_ranges(in_whole);
}

std::optional<file_range> section_source::plain_file() const {
  auto found = whole_.plain_file();
  if (found) *found = {std::move(found->path), found->offset + offset_, length_};
  return found;
}

struct file_pool::state {
  explicit state(std::size_t max_open) : open(max_open) {}
  descriptors open;
  listed_versions listed;
};

namespace {

// The version of a file. It differs when another file has taken the name, and when the bytes have changed, except by a
// write within one tick of the system's clock.
struct file_version {
  dev_t device = 0;
  ino_t number = 0;
  off_t size = 0;
  std::int64_t written_s = 0, written_ns = 0;
  explicit file_version(const struct stat& status)
      : device(status.st_dev),
        number(status.st_ino),
        size(status.st_size),
        written_s(status.st_mtim.tv_sec),
        written_ns(status.st_mtim.tv_nsec) {}
  bool operator==(const file_version&) const = default;
};

// Returns the number of bytes of [begin, end) outside of holes. A count of blocks would be wrong on a file system that
// compresses.
std::int64_t data_bytes(int fd, std::int64_t begin, std::int64_t end) {
  std::int64_t found = 0;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0) return errno == ENXIO ? found : end - begin;  // ENXIO: a hole up to the end
    if (data >= end) break;
    const std::int64_t hole = ::lseek(fd, data, SEEK_HOLE);
    if (hole <= data) return end - begin;
    found += std::min(hole, end) - data;
    at = hole;
  }
  return found;
}

template <class Pool>
class pooled_file final : public byte_source {
 public:
  pooled_file(std::shared_ptr<Pool> pool, std::string path) : pool_(std::move(pool)), path_(std::move(path)) {}
  ~pooled_file() override { pool_->open.forget(number()); }

  result<void> find_size() {
    SHARDMESH_TRY(const auto opened, acquire());
    struct stat status{};
    if (::fstat(opened.fd(), &status) != 0) return fail_sys(errno, "cannot stat", path_);
    version_.emplace(status);
    size_ = status.st_size;
    return {};
  }
  std::int64_t size_bytes() const override { return size_; }
  std::string name() const override { return path_; }
  std::optional<file_range> plain_file() const override { return file_range{path_, 0, size_}; }
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    const auto opened = acquire();
    struct stat status{};
    if (!opened || ::fstat(opened->fd(), &status) != 0) return length;  // the read reports the error
    if (status.st_blocks >= (status.st_size + 511) / 512) return length;
    return data_bytes(opened->fd(), offset, offset + length);
  }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    SHARDMESH_TRY(check_range(*this, offset, out.size()));
    SHARDMESH_TRY(const auto opened, acquire());
    SHARDMESH_TRY(read_from(opened.fd(), offset, out));
    return check_version(opened.fd());
  }

 private:
  std::uint64_t number() const { return reinterpret_cast<std::uintptr_t>(this); }
  result<descriptors::use> acquire() const {
    return pool_->open.acquire(number(), [&] { return open_regular(path_); });
  }
  result<void> read_from(int fd, std::int64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const std::ptrdiff_t got = ahead_.read(fd, offset, out);
      if (got < 0) return fail_sys(errno, "cannot read", path_);
      if (got == 0) return fail(errc::io, "became shorter while it was read").with_file(path_);
      out = out.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    return {};
  }

  // Called after a read. The file may have been overwritten in place, or replaced while no descriptor held it. A reader
  // that relies on the old file's description would then return a mixture of two files.
  result<void> check_version(int fd) const {
    struct stat status{};
    if (::fstat(fd, &status) != 0) return fail_sys(errno, "cannot stat", path_);
    if (file_version(status) == *version_) return {};
    return fail(errc::io, "changed after it was opened").with_file(path_).with_hint("open it again");
  }

  std::shared_ptr<Pool> pool_;
  std::string path_;
  std::optional<file_version> version_;
  std::int64_t size_ = 0;
  mutable file_ahead ahead_;
};

}  // namespace

file_pool::file_pool(std::size_t max_open) : state_(std::make_shared<state>(max_open)) {}
file_pool::file_pool(const file_pool&) = default;
file_pool& file_pool::operator=(const file_pool&) = default;
file_pool::~file_pool() = default;

result<std::unique_ptr<byte_source>> file_pool::open(const std::filesystem::path& path) {
  if (is_url(path)) {
    SHARDMESH_TRY(std::unique_ptr<byte_source> object, ask_open(path.native()));
    SHARDMESH_TRY(state_->listed.check(path.native(), object->version()));
    return result<std::unique_ptr<byte_source>>(std::move(object));
  }
  auto file = std::make_unique<pooled_file<state>>(state_, path.string());
  if (auto found = file->find_size(); !found) {
    if (found.error().sys == ENOENT) SHARDMESH_TRY(detail::check_not_shortened(path));
    return std::move(found).error();
  }
  return std::unique_ptr<byte_source>(std::move(file));
}

result<void> file_pool::keep_lists() {
  return state_->listed.keep_lists();
}

result<void> check_readable(const byte_source& source, std::int64_t offset, std::int64_t length,
                            std::int64_t limit_bytes) {
  constexpr std::int64_t always = 1 << 20, part_of_limit = 64, per_stored_byte = 16;
  if (length > limit_bytes)
    return fail(errc::bad_format, "is too large")
        .with_file(source.name())
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", length));
  if (length <= always) return {};
  const std::int64_t stored = source.stored_bytes(offset, length);
  const std::int64_t most = std::max(
      always, checked_add(limit_bytes / part_of_limit, checked_multiply(stored, per_stored_byte).value_or(INT64_MAX))
                  .value_or(INT64_MAX));
  if (length <= most) return {};
  error refused = beyond_limit(
      fmt::format("is a sparse file: {} bytes are requested, of which {} are stored", length, stored), most);
  refused.found = fmt::format("{}", length);
  // The limit of most files that are read whole is fixed.
  refused.hint = "write the file without holes (cp --sparse=never), if you trust it";
  return std::move(refused).with_file(source.name());
}

result<std::vector<std::byte>> read_range(const byte_source& source, std::int64_t offset, std::int64_t length,
                                          std::int64_t limit_bytes) {
  SHARDMESH_TRY(check_range(source, offset, static_cast<std::size_t>(std::max<std::int64_t>(length, 0))));
  SHARDMESH_TRY(check_readable(source, offset, length, limit_bytes));
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  SHARDMESH_TRY(source.read(offset, bytes));
  return bytes;
}

result<std::vector<std::byte>> read_all(const byte_source& source, std::int64_t limit_bytes) {
  return read_range(source, 0, source.size_bytes(), limit_bytes);
}

result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::int64_t limit_bytes) {
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(path));
  return read_all(*source, limit_bytes);
}

}  // namespace shardmesh
