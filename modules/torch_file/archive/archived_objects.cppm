// SPDX-License-Identifier: Apache-2.0
// Readers that can open an object's own archive. `split_reader` makes entries of the tensors inside objects.
export module shardmesh.torch_file:archived_objects;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :item;

export namespace shardmesh::torch_file {

/// An object's opened archive, with the archive's bytes.
struct opened_object {
  std::shared_ptr<const byte_source> source;
  std::shared_ptr<const torch_file::item> item;
  std::shared_ptr<read_budget> budget;  // the checkpoint's
  std::string place;                    // names the item in the budget
};

/// Interface of checkpoint readers whose objects are archives of their own.
class archived_objects {
 public:
  virtual ~archived_objects() = default;
  /// Opens the object at `index` in the catalog's objects. Errors name the key and the file.
  virtual result<opened_object> open_object(std::size_t index) = 0;
};

/// Opens an object of any reader.
/// \errors errc::unsupported for readers whose objects are not archives; otherwise those of the reader
result<opened_object> open_object(checkpoint_reader& reader, std::size_t index);

/// A reader that passes on another reader's objects unchanged, together with their archives.
class archive_forwarding_reader : public forwarding_reader, public archived_objects {
 public:
  result<opened_object> open_object(std::size_t index) override;

 protected:
  using forwarding_reader::forwarding_reader;
};

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// Opens the archive's tensor with index `tensor`.
result<opened_chunk> open_tensor(const opened_object& object, std::size_t tensor);
// Charges the budget for the elements that a view repeats beyond its stored bytes, as zeros(1).expand(2**38) does.
result<void> spend_repeated(const opened_object& object, std::size_t tensor);

}  // namespace shardmesh::torch_file
