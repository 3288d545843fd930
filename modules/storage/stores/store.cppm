// SPDX-License-Identifier: Apache-2.0
// store: a place of checkpoints other than the local file system, reached by URLs. Room `storage` knows no protocol: a
// store is a class that a program registers for a scheme. Room `remote` has those of HTTP, S3, Google Cloud Storage,
// and the Hugging Face hub.
export module shardmesh.storage:store;

import shardmesh.std;
import shardmesh.core;
import :source;

export namespace shardmesh {

/// An object of a store, or a folder: a prefix that other names share.
struct stored_object {
  /// The last part of its name, without slashes.
  std::string name;
  bool is_folder = false;
  std::int64_t size_bytes = 0;  // 0 for a folder
  /// Differs when the content differs (an ETag or a generation). Empty for a folder, and when the store has none.
  std::string version{};
  friend bool operator==(const stored_object&, const stored_object&) = default;
};

/// The condition under which `store::put` writes, and its memory.
struct put_condition {
  /// Only when nothing has the name.
  bool if_absent = false;
  /// When not empty: only while the object has this version.
  std::string if_version{};
  /// Bounds the content that is in memory at a time, down to the smallest part that the store sends. 0: the store's
  /// default.
  std::int64_t memory_bytes = 0;
};

/// A place that holds objects under URLs of one scheme. Thread-safe. A URL reaches the store as the user wrote it, or
/// with "/NAME" appended for an object of a folder. Every error names the URL as `printable_url` returns it. The `sys`
/// of an error is ENOENT when the object does not exist, and EACCES when the server denies access: a reader then
/// treats a file that need not exist as missing.
class store {
 public:
  virtual ~store() = default;

  /// Looks at one name. Returns nothing when neither an object nor a folder has it.
  /// \errors errc::io; errc::deadline_exceeded
  virtual result<std::optional<stored_object>> look(const std::string& url) const = 0;
  /// Lists what is directly in a folder, all pages: every name, or an error. A folder that does not exist is empty. A
  /// store that cannot list all names, hidden ones included, returns errc::unsupported; readers then look for the names
  /// of descriptions (`.metadata`, `model.safetensors.index.json`, and so on).
  virtual result<std::vector<stored_object>> list(const std::string& url) const = 0;
  /// Opens an object for reading. A read fails with errc::io once the object has another version.
  /// \errors errc::io, also when there is no such object
  virtual result<std::unique_ptr<byte_source>> open(const std::string& url) const = 0;

  /// Returns whether the store writes objects. A save, a conversion, or a reshard to a store that only reads is refused
  /// before the first request. A store with `put` and `remove` returns true.
  virtual bool can_write() const;
  /// Writes a whole object, which appears at once or not at all, and returns its version.
  /// \errors errc::destination_exists when the condition does not hold; errc::unsupported when the store cannot write;
  ///         errc::io, after which nothing is left of the upload, or the error says what is left. After
  ///         errc::cancelled and errc::deadline_exceeded with the `sys` EINPROGRESS, the server may still store the
  ///         object.
  virtual result<std::string> put(const std::string& url, const byte_source& content,
                                  const put_condition& condition) const;
  /// Removes an object. It need not exist.
  virtual result<void> remove(const std::string& url) const;
  /// Removes an object while it has this version: one that another writer has put there since stays. The object need
  /// not exist, and an empty version stands for every one. The default looks at the object, and then removes it; a
  /// store whose server compares versions closes the gap between the two.
  /// \errors errc::destination_exists when the object has another version
  virtual result<void> remove_version(const std::string& url, const std::string& version) const;
  /// Returns whether "/NAME" after the URL of a folder names the file NAME. False for a name that reads as something
  /// else in a URL, such as "a?b" under http: a listing or a description that has this name is then an error, because
  /// another object could be read. The default returns true.
  virtual bool takes_name(std::string_view name) const;
  /// An upload in parts that was begun, and neither completed nor ended. The server keeps its parts.
  struct unfinished_upload {
    std::string url;  // of the object
    std::string id;
    std::optional<std::chrono::system_clock::time_point> began{};  // nothing if the server does not state it
    std::int64_t size_bytes = 0;                                   // of its parts
  };
  /// Returns the unfinished uploads of the object at a URL, and of the objects directly in the folder. The default
  /// returns none.
  virtual result<std::vector<unfinished_upload>> unfinished_uploads(const std::string& url) const;
  /// Ends an unfinished upload: the server removes its parts. It need not exist.
  virtual result<void> end_upload(const unfinished_upload& upload) const;
  /// False for a server that was found to ignore conditions of `put`: two writers can then overwrite each other.
  virtual bool keeps_conditions(const std::string& url) const;
};

/// Returns whether the path is a URL (SCHEME://...), and its scheme. A scheme has letters, digits, "+", "-", and ".".
bool is_url(const std::filesystem::path& path);
std::string scheme_of(const std::filesystem::path& path);

/// Makes `handler` the store of a scheme in this process, in place of the present one. Without a handler, the scheme
/// has no store. The stores of room `remote` are registered before the first use, if the program links the room.
/// Thread-safe. Opened checkpoints keep the store with which they were opened.
void register_store(const std::string& scheme, std::shared_ptr<const store> handler);

/// Returns the store of a URL.
/// \errors errc::unsupported, naming the scheme and the known ones
result<std::shared_ptr<const store>> store_of(const std::filesystem::path& url);

}  // namespace shardmesh

export namespace shardmesh::detail {

// Registers a store for a scheme that has none yet: room `remote` calls it for each of its schemes.
void add_default_store(const std::string& scheme, std::shared_ptr<const store> handler);

// Refuses a destination under a URL whose scheme has no store, or one that only reads: errc::unsupported. Sends no
// request. Accepts every local path, except for those that `check_not_shortened` refuses.
result<void> check_can_write(const std::filesystem::path& destination);

// Refuses a file name that the folder's store does not take: errc::unsupported, naming it. Accepts every name in a
// local folder.
result<void> check_name_in(const std::filesystem::path& folder, std::string_view name);

// Refuses "s3:/bucket/key", the form of a URL that a shell or a library has normalised as a path, unless the path
// exists on this machine: errc::invalid_argument. The schemes are those of stores, and "file". Accepts everything else.
result<void> check_not_shortened(const std::filesystem::path& path);

}  // namespace shardmesh::detail
