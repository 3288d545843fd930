// SPDX-License-Identifier: Apache-2.0
// archived_objects: readers whose objects are archives of their own, for a look inside. Not here: what is done with
// the tensors in them (split_reader).
export module shardmesh.torch_file:archived_objects;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;
import :item;

export namespace shardmesh::torch_file {

/// What an object lies in: its archive and that archive's bytes.
struct opened_object {
  std::shared_ptr<const byte_source> source;
  std::shared_ptr<const torch_file::item> item;
  std::shared_ptr<read_budget> budget;  // of the checkpoint
  std::string place;                    // names the item there
};

/// Implemented by a checkpoint_reader.
class archived_objects {
 public:
  virtual ~archived_objects() = default;
  /// `index` is into the catalog's objects. Errors name key and file.
  virtual result<opened_object> open_object(std::size_t index) = 0;
};

/// The same of any reader. errc::unsupported for those whose objects are no archives.
result<opened_object> open_object(checkpoint_reader& reader, std::size_t index);

/// A reader that shows another's objects as they are, archives and all.
class archive_forwarding_reader : public forwarding_reader, public archived_objects {
 public:
  result<opened_object> open_object(std::size_t index) override;

 protected:
  using forwarding_reader::forwarding_reader;
};

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// A tensor of the archive, by its index there.
result<opened_chunk> open_tensor(const opened_object& object, std::size_t tensor);
// Counts what a view repeats of what is stored (zeros(1).expand(2**38)).
result<void> spend_repeated(const opened_object& object, std::size_t tensor);

}  // namespace shardmesh::torch_file
