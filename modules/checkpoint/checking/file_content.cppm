// SPDX-License-Identifier: Apache-2.0
// Not exported: recognises a file, or a record of an archive, by its first bytes, and opens a record's bytes as a
// source. pickle_scan searches the pickles.
module shardmesh.checkpoint:file_content;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh {

enum class content : std::uint8_t {
  zip,
  pickle,
  safetensors,
  either,  // a pickle or a safetensors header: the first bytes fit both
  array,   // a .npy file whose elements are, or may be, pickled objects
  packed,  // an archive or compressed data of a kind that is not searched
  other,
};

struct found_content {
  content kind = content::other;
  std::string_view packed;     // the kind's name: "gzip data"
  std::int64_t pickle_at = 0;  // where the pickle of an array begins
};

/// Recognises the kind of the bytes. `may_be_packed`: the name allows compressed data. Short signatures count only
/// then.
/// Cost: one read of at most 262 bytes, and one of a .npy header.
found_content content_of(const byte_source& source, bool may_be_packed);

/// Returns true for a name in angle brackets that stands for packed bytes: "<gzip data>".
bool is_packed_name(std::string_view name);

/// The bytes of a record. A deflated record is inflated completely only if it may hold pickles; otherwise, only its
/// first 4 KiB are.
class record_content {
 public:
  /// Opens a record. `may_be_pickle`: the record has the name of a pickle. `source` must outlive this.
  /// \errors those of `read_record`; `beyond_limit` when the record holds pickles and decodes to more than `budget`
  ///         allows
  static result<record_content> open(const byte_source& source, const zip_record& record, bool may_be_pickle,
                                     read_budget& budget);
  const byte_source& source() const { return *source_; }

 private:
  void hold(std::vector<std::byte> bytes, std::string name);

  std::unique_ptr<std::vector<std::byte>> bytes_;  // the inflated bytes, if `source_` needs any
  std::unique_ptr<byte_source> source_;
};

}  // namespace shardmesh
