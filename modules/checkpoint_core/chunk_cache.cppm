// SPDX-License-Identifier: Apache-2.0
// Code that the file-based readers share: files opened on first use, sections of files, and recently used chunks.
export module shardmesh.checkpoint_core:chunk_cache;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :reader;

export namespace shardmesh {

/// The bytes [offset, offset + length) of a file. Keeps the file alive.
class shared_section final : public byte_source {
 public:
  shared_section(std::shared_ptr<const byte_source> whole, std::int64_t offset, std::int64_t length)
      : whole_(std::move(whole)), section_(*whole_, offset, length) {}
  std::int64_t size_bytes() const override { return section_.size_bytes(); }
  std::string name() const override { return whole_->name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override { return section_.read(offset, out); }
  result<void> read_ranges(std::span<const source_range> ranges) const override { return section_.read_ranges(ranges); }
  std::int64_t bytes_per_request() const override { return section_.bytes_per_request(); }
  std::optional<file_range> plain_file() const override { return section_.plain_file(); }
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return section_.stored_bytes(offset, length);
  }

 private:
  std::shared_ptr<const byte_source> whole_;
  section_source section_;
};

/// The files that `folder_files` may open.
enum class file_scope : std::uint8_t {
  folder,           // files in the folder
  sibling_folders,  // also each `sibling_file`
};

/// The files of a folder by number, each opened on first use. Thread-safe.
class folder_files {
 public:
  folder_files(std::filesystem::path folder, std::vector<std::string> names, file_pool pool,
               file_scope scope = file_scope::folder);
  /// Takes the files from these sources, such as members of an archive; the folder need not exist. One per name; null:
  /// the file is missing. Call it before the first `open`.
  void provide(std::vector<std::shared_ptr<const byte_source>> sources);
  /// Opens a file.
  /// \errors errc::bad_format when the file is missing or not a regular file; errc::unsafe_path when a symbolic link
  ///         leads out of the folder; those of `check_sibling`; errc::io, also when the path names another folder than
  ///         at first
  result<std::shared_ptr<const byte_source>> open(std::int32_t file);
  /// Returns a range of a file as a source of its own.
  /// \errors those of `open`; errc::out_of_bounds when the file is shorter
  result<std::shared_ptr<const byte_source>> section(std::int32_t file, std::int64_t offset, std::int64_t length);
  std::filesystem::path path_of(std::int32_t file) const { return folder_ / names_[static_cast<std::size_t>(file)]; }

  /// A local folder, whatever its path is.
  struct folder_identity {
    std::uint64_t device = 0, number = 0;
    std::uint64_t modified = 0;  // ns, of which the last 64 bits count
    /// A file system over a network may give a folder another number later, but keeps its time. Files that are added to
    /// a folder change its time alone.
    bool is_same_as(const folder_identity& other) const {
      return (device == other.device && number == other.number) || modified == other.modified;
    }
  };
  /// Returns nothing for a URL, and when there is nothing at the path.
  static std::optional<folder_identity> identity_of(const std::filesystem::path& folder);

 private:
  // Checks that the path still names the folder whose description was read.
  result<void> check_same_folder();
  result<std::unique_ptr<byte_source>> open_file(std::int32_t file);
  // Returns the outcome of an earlier `open`, if there is one that still holds.
  std::optional<result<std::shared_ptr<const byte_source>>> known(std::int32_t file);

  std::filesystem::path folder_, real_folder_;
  std::vector<std::string> names_;
  file_pool pool_;
  file_scope scope_;
  // An object of a store is opened by a request. Several files are opened at a time, and each by one thread.
  std::array<detail::call_lock, 16> opening_;
  std::mutex lock_;  // is not held during a request
  std::vector<std::shared_ptr<const byte_source>> opened_;
  bool is_provided_ = false;  // `opened_` has all files that exist
  std::optional<folder_identity> identity_;
  std::chrono::steady_clock::time_point checked_{};  // the last time at which the path named this folder; under `lock_`
};

/// Checks that `folder_files` would open this file: it lies in the folder, and no link leads out of it. For files that
/// are opened by other means.
/// \errors errc::bad_format, errc::unsafe_path, errc::io; each names the file
/// Cost: a few system calls; opens the file only when its path contains a link.
result<void> check_inside(const std::filesystem::path& folder, const std::string& file);

/// The most recently used chunks. Thread-safe.
class chunk_cache {
 public:
  using entry = std::shared_ptr<const opened_chunk>;
  chunk_cache();
  ~chunk_cache();
  entry find(std::int32_t chunk);
  void insert(std::int32_t chunk, entry opened);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
