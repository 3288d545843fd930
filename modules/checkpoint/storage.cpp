// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

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

struct descriptor {
  int number = -1;
  explicit descriptor(int opened) : number(opened) {}
  descriptor(const descriptor&) = delete;
  ~descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

result<void> memory_source::read(std::int64_t offset, std::span<std::byte> out) const {
  SHARDMESH_CHECK(check_range(*this, offset, out.size()));
  std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
  return {};
}

result<void> section_source::read(std::int64_t offset, std::span<std::byte> out) const {
  SHARDMESH_CHECK(check_range(*this, offset, out.size()));
  return whole_.read(offset_ + offset, out);
}

// Descriptors in use are kept alive by shared_ptr, so closing the least recently used one never pulls a file from under
// a read: at most max_open + number of threads are open.
struct file_pool::state {
  using entry = std::pair<const void*, std::shared_ptr<descriptor>>;
  std::size_t max_open;
  std::mutex lock;
  std::list<entry> recent;  // most recently used first
  std::unordered_map<const void*, std::list<entry>::iterator> by_file;

  result<std::shared_ptr<descriptor>> get(const void* file, const std::string& path) {
    {
      const std::scoped_lock guard(lock);
      if (const auto found = by_file.find(file); found != by_file.end()) {
        recent.splice(recent.begin(), recent, found->second);
        return recent.front().second;
      }
    }
    auto opened = std::make_shared<descriptor>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (opened->number < 0) return fail_sys(errno, "cannot open", path);
    const std::scoped_lock guard(lock);
    if (by_file.contains(file)) return opened;
    recent.emplace_front(file, opened);
    by_file[file] = recent.begin();
    if (recent.size() > max_open) {
      by_file.erase(recent.back().first);
      recent.pop_back();
    }
    return opened;
  }

  void forget(const void* file) {
    const std::scoped_lock guard(lock);
    if (const auto found = by_file.find(file); found != by_file.end()) {
      recent.erase(found->second);
      by_file.erase(found);
    }
  }
};

namespace {

template <class Pool>
class pooled_file final : public byte_source {
 public:
  pooled_file(std::shared_ptr<Pool> pool, std::string path) : pool_(std::move(pool)), path_(std::move(path)) {}
  ~pooled_file() override { pool_->forget(this); }

  result<void> find_size() {
    SHARDMESH_TRY(const auto opened, pool_->get(this, path_));
    struct stat status{};
    if (::fstat(opened->number, &status) != 0) return fail_sys(errno, "cannot stat", path_);
    if (!S_ISREG(status.st_mode)) return fail(errc::io, "is not a regular file").with_file(path_);
    size_ = status.st_size;
    return {};
  }
  std::int64_t size_bytes() const override { return size_; }
  std::string name() const override { return path_; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    SHARDMESH_CHECK(check_range(*this, offset, out.size()));
    SHARDMESH_TRY(const auto opened, pool_->get(this, path_));
    while (!out.empty()) {
      const ssize_t got = ::pread(opened->number, out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail_sys(errno, "cannot read", path_);
      if (got == 0) return fail(errc::io, "became shorter while it was read").with_file(path_);
      out = out.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    return {};
  }

 private:
  std::shared_ptr<Pool> pool_;
  std::string path_;
  std::int64_t size_ = 0;
};

}  // namespace

file_pool::file_pool(std::size_t max_open) : state_(std::make_shared<state>()) {
  // Several pools are open at a time (two readers of a diff, checksums, a destination): each takes a quarter at most.
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) max_open = std::min<std::size_t>(max_open, limit.rlim_cur / 4);
  state_->max_open = std::max<std::size_t>(max_open, 1);
}
file_pool::~file_pool() = default;

result<std::unique_ptr<byte_source>> file_pool::open(const std::filesystem::path& path) {
  auto file = std::make_unique<pooled_file<state>>(state_, path.string());
  SHARDMESH_CHECK(file->find_size());
  return std::unique_ptr<byte_source>(std::move(file));
}

result<std::vector<std::byte>> read_all(const byte_source& source, std::int64_t limit_bytes) {
  if (source.size_bytes() > limit_bytes)
    return fail(errc::invalid_argument, "is too large")
        .with_file(source.name())
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", source.size_bytes()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(source.size_bytes()));
  SHARDMESH_CHECK(source.read(0, bytes));
  return bytes;
}

result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::int64_t limit_bytes) {
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(path));
  return read_all(*source, limit_bytes);
}

}  // namespace shardmesh
