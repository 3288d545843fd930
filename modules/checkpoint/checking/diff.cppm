// SPDX-License-Identifier: Apache-2.0
// diff: finds the differences between two checkpoints of any formats: names, dtypes, shapes, values, objects, and, on
// request, chunks. Their kinds are in room tree; differences of state dicts are in room state.
export module shardmesh.checkpoint:diff;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :selection;

export namespace shardmesh {

/// The options of `diff`: what it compares, and in how much memory. By default, dtypes and values must be equal
/// exactly, and chunks are ignored.
struct diff_options {
  double tolerance = 0;       // 0: bitwise, except that NaN equals NaN and -0 equals 0; else |a-b| <= T + T*|b|
  bool layout = false;        // also compare chunk boxes
  bool ignore_dtype = false;  // compare values across dtypes
  selection_options
      selection{};  // chooses, renames, and casts the entries of both readers; a `diff` of sides ignores it
  int threads = 0;  // 0: all cores
  std::int64_t memory_bytes = default_memory_bytes;  // for slabs, over all threads
  time_limit within{};                               // a duration or a time point (errc::deadline_exceeded)
  std::stop_token cancel{};                          // errc::cancelled

  /// Returns the limits of the call.
  call_options call() const { return {.within = within, .cancel = cancel}; }
};

/// A key at which two checkpoints differ. One key may differ in several ways: in its dtype and its layout, for example.
struct key_difference : difference {
  std::string key;
  friend bool operator==(const key_difference&, const key_difference&) = default;
};

/// The result of `diff`. `differences` is empty exactly when everything that was compared is equal.
struct diff_report {
  std::vector<key_difference> differences;           // in key order
  std::vector<error> problems;                       // why entries could not be read, in key order
  std::vector<std::string> notes;                    // of the selection, for the user, one line each
  std::int64_t tensors = 0, objects = 0, bytes = 0;  // compared
};

/// An entry that takes part in a `diff`: the key under which it is compared, and its position.
struct diff_entry {
  std::string key;
  std::size_t index = 0;  // in the tensors or objects of the reader's catalog
  bool is_tensor = true;
  dtype type = dtype::undefined;  // compared as this dtype
};

/// One side of a `diff`: a reader, which must outlive it, and the entries that take part, with their keys and dtypes.
struct diff_side {
  checkpoint_reader& reader;
  std::vector<diff_entry> entries;
};
/// Returns all entries of a reader, each under its own key and dtype.
diff_side whole_side(checkpoint_reader& reader);

/// Compares two sides slab by slab, in bounded memory. Wrapping tensors (sparse, quantized, torchao's) that both sides
/// have are compared by their components, each under a key of its own; `comparable_views` shows components as wrappers.
/// An entry that cannot be read is a difference (`unreadable`) and a problem of the report, and the comparison
/// continues. Entries whose values we cannot interpret (objects and tensors of foreign types) are compared by their
/// bytes, whatever formats the two sides have.
/// \errors errc::invalid_argument for a tolerance that is negative or not a number; errc::deadline_exceeded,
///         errc::cancelled
result<diff_report> diff(const diff_side& left, const diff_side& right, const diff_options& options = {});
/// Compares the entries of both readers that `options.selection` chooses, as `comparable_views` shows them. A rule must
/// match or cast something on at least one side.
/// \errors also those of `select_keys`
result<diff_report> diff(checkpoint_reader& left, checkpoint_reader& right, const diff_options& options = {});

}  // namespace shardmesh
