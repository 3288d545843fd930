// SPDX-License-Identifier: Apache-2.0
// diff: what differs between two checkpoints of any formats: names, dtypes, shapes, values, objects and, if asked,
// chunks.
export module shardmesh.checkpoint:diff;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.catalog;

export namespace shardmesh {

/// What `diff` of two checkpoints compares, and with how much memory. By default dtypes and values exactly, and not how
/// tensors are cut into chunks.
struct diff_options {
  double tolerance = 0;       // 0: bits, except that NaN equals NaN and -0 equals 0; else |a-b| <= T + T*|b|
  bool layout = false;        // compare chunk boxes too
  bool ignore_dtype = false;  // compare values across dtypes
  int threads = 0;            // 0: all cores
  std::int64_t memory_bytes = default_memory_bytes;  // of slabs, all threads together
};

/// What about a key differs. One key may have several: its dtype and its layout, for example.
enum class difference_kind : std::uint8_t {
  only_left,   // the right side has no such key
  only_right,  // the left side has none
  kind,        // a tensor and an object, or a plain tensor and an opaque one
  dtype,
  shape,
  values,      // elements; of opaque tensors, stored bytes
  object,      // the values of two objects
  layout,      // chunk boxes; with `diff_options::layout` alone
  unreadable,  // one side could not be read: whether the values differ is not known
};
std::string_view name(difference_kind kind);

/// One key that differs. `text` is the whole finding in one line, without the key.
struct difference {
  std::string key;
  difference_kind what;
  std::string text;
  std::int64_t different = 0;  // elements, for `values`
  std::int64_t elements = 0;
  extents first_index;  // of the first element that differs
  double largest = 0;   // |a-b|; infinite or NaN where the values are
};

/// What `diff` found. Nothing that was compared differs exactly when `differences` is empty.
struct diff_report {
  std::vector<difference> differences;               // in key order
  std::vector<error> problems;                       // why entries could not be read, in key order
  std::int64_t tensors = 0, objects = 0, bytes = 0;  // compared
};

/// An entry that takes part in a `diff`: the key that it is compared under, and which one it is.
struct diff_entry {
  std::string key;
  std::size_t index = 0;  // into the tensors or objects of the reader's catalog
  bool is_tensor = true;
  dtype type = dtype::undefined;  // compared as this dtype
};

/// One side of a `diff`: a reader, which outlives it, and which of its entries take part under which key and dtype.
struct diff_side {
  checkpoint_reader& reader;
  std::vector<diff_entry> entries;
};
/// Every entry under its own name and dtype.
diff_side whole_side(checkpoint_reader& reader);

/// Reads both sides slab by slab, in bounded memory. Wrapping tensors (sparse, quantized, torchao's) that both sides
/// have are compared by their components, each under a name of its own; `alike_readers` shows components as wrappers.
/// An entry that cannot be read is a difference of its own
/// (`unreadable`) and a problem of the report; the comparison goes on. What has no values that we know (objects and
/// tensors of foreign types) is compared by its bytes, whatever formats the two sides have.
/// \errors errc::invalid_argument for a tolerance that is negative or no number.
result<diff_report> diff(const diff_side& left, const diff_side& right, const diff_options& options = {});
/// The same of all entries of both, seen as `alike_readers` shows them: what `shardmesh diff` compares without rules.
result<diff_report> diff(checkpoint_reader& left, checkpoint_reader& right, const diff_options& options = {});

}  // namespace shardmesh
