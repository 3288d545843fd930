// SPDX-License-Identifier: Apache-2.0
// Not exported: step_copy, which copies the bytes of a step, and the bytes of other steps that it needs. The checks
// of the copy are in flatten.
module shardmesh.run:step_copy;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.dcp;

namespace shardmesh {

// Copies the bytes of a step into a new folder, range by range of its record of checksums. Ranges of the step's own
// files keep their places. Those of rank 3's file of another step are appended to "__3_1.distcp".
class step_copy {
 public:
  // All three outlive the copy.
  step_copy(const checkpoint_reader& reader, std::span<const checksum_range> record, staged_output& output);

  result<void> run();
  // The places of all items in the new folder, in the order in which `dcp::finish_folder` takes them.
  result<std::vector<dcp::item_place>> places_of(const conversion& work) const;
  std::vector<checksum_range> ranges() const { return ranges_; }
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  result<void> reserve() const;
  result<void> copy(const checksum_range& range);
  result<dcp::item_place> new_place_of(const checksum_range& range);
  // The file of a rank for items of other steps. No file of the step has its name.
  std::string new_file_of(std::int32_t rank);
  result<std::int32_t> number_of(const std::string& file);
  result<const byte_source*> source_of(const std::string& file);
  // The items of a tensor's chunks, as `select_for_output` lists the chunks: without empty ones, but one at least.
  std::vector<stored_range> items_of(const tensor_entry& stored) const;
  result<dcp::item_place> place_of(const stored_range& at) const;

  const checkpoint_reader& reader_;
  std::span<const checksum_range> record_;
  staged_output& output_;
  std::vector<std::byte> buffer_;
  file_pool pool_;
  std::set<std::string> own_names_;
  std::map<std::string, std::unique_ptr<byte_source>> sources_;
  std::map<std::string, std::int32_t> numbers_;                            // in the output
  std::map<std::int32_t, std::string> new_files_;                          // by rank
  std::map<std::string, std::int64_t> sizes_;                              // of the new files
  std::map<std::pair<std::string, std::int64_t>, dcp::item_place> moved_;  // by the old file and offset
  std::vector<checksum_range> ranges_;                                     // of the new folder
  std::int64_t copied_bytes_ = 0;
};

}  // namespace shardmesh
