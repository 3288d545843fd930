// SPDX-License-Identifier: Apache-2.0
// error: one line about a failure: its cause, its place (key, file, ranks, boxes), and the expected and found values.
// A call that finds several problems returns the first one, which carries the others.
export module shardmesh.core:error;

import shardmesh.std;
import :box;

export namespace shardmesh {

/// The kind of a failure: the code of every `error`, and a std::error_code of `category()`. Each function's comment
/// lists the codes that it returns. `ok` is the code of an `error` that reports nothing.
enum class errc {
  ok,
  invalid_argument,    // a value of the caller or the user is invalid
  overflow,            // sizes do not fit in 64 bits
  rank_too_large,      // more than max_rank dimensions
  shape_mismatch,      // sizes that must be equal differ
  dtype_mismatch,      // element types that must be equal differ
  out_of_bounds,       // a box or byte range exceeds its container
  overlap,             // two different boxes share cells
  gap,                 // no rank or item holds a cell
  mixed_partial,       // reductions that cannot be combined
  unaligned,           // a sub-byte type is cut inside a byte
  narrowing,           // a cast that loses values was not allowed
  no_memory,           // the memory budget is too small, or the system has no memory left
  missing_key,         // a named tensor does not exist
  duplicate_key,       // two entries have the same name
  bad_format,          // a file does not follow its format
  bad_pickle,          // a pickle stream is malformed or exceeds our limits
  unsupported,         // valid, but of a kind that we do not read or write
  checksum_mismatch,   // bytes differ from their checksum
  incomplete_save,     // a save was interrupted
  unsafe_path,         // a path that leaves the checkpoint's folder
  destination_exists,  // the destination exists and must not be replaced
  io,                  // the operating system or a server refused an operation, or a file changed during a read
  no_space,            // like io: the disk or quota is full
  cancelled,           // the caller cancelled the call
  deadline_exceeded,
  disagreement,   // ranks hold different descriptions of the same thing
  communication,  // a transport failed
};

/// The category of `errc` codes, named "shardmesh".
const std::error_category& category() noexcept;
std::error_code make_error_code(errc code) noexcept;

/// A failure. All fields except `code` are optional; `to_string` prints the fields that are set. Build one as
/// `fail(errc::gap, "rows are held by no rank").with_key("w").with_box(b)`, and one for several problems with
/// `fail_all`.
struct error {
  errc code = errc::ok;
  std::string message;
  std::string key;   // fqn of the tensor or object
  std::string file;  // path, as the user knows it
  std::vector<std::int32_t> ranks;
  std::vector<box> boxes;
  std::string expected, found, hint;
  int sys = 0;  // errno of the failure, of errc::io, errc::no_space, and errc::no_memory; 0 if there is none
  /// The problems that the same call found besides this one: the first ones, each without others of its own.
  std::vector<error> others;
  std::int64_t more = 0;  // number of further problems, which are not kept

  /// The most `others` that `fail_all` keeps.
  static constexpr std::size_t max_others = 99;

  /// Returns all kept problems: this one first, without its others.
  std::vector<error> problems() const;
  /// Returns the number of problems, including those that are not kept.
  std::int64_t problem_count() const;

  error with_key(std::string_view name) &&;
  error with_file(std::string_view path) &&;
  error with_rank(std::int32_t rank) &&;
  error with_box(const box& b) &&;
  error with_values(std::string expected_value, std::string found_value) &&;
  error with_hint(std::string_view text) &&;

  friend bool operator==(const error&, const error&) = default;
};

/// Makes an error. `message` describes the failure without key, file, or values, which have their own fields.
error fail(errc code, std::string message);

/// Makes the error of a call that found several problems: the first, with the next 99 as its others and the rest
/// counted. A problem that has others of its own is followed by them.
/// \param problems  not empty
/// \param more      number of problems that the caller dropped before
error fail_all(std::vector<error> problems, std::int64_t more = 0);

/// Makes an error from an `errno` value. `action` is a phrase such as "cannot open". The code is errc::no_space for
/// ENOSPC and EDQUOT, else errc::io.
error fail_sys(int sys, std::string_view action, std::string_view file);

/// Formats an error as one line: "file: key: message in boxes (ranks ..): expected .., found ..; hint". The other
/// problems are only counted: " (and 2 other problems)" ends the line. Control bytes are escaped.
std::string to_string(const error& e);

/// Thrown by `result<T>::value()`. `what()` is `to_string(error())`.
class exception : public std::exception {
 public:
  using error_type = shardmesh::error;
  explicit exception(error_type e);
  const char* what() const noexcept override { return text_.c_str(); }
  const error_type& error() const { return error_; }

 private:
  error_type error_;
  std::string text_;
};

}  // namespace shardmesh

// Exported for other rooms; not for users.
export namespace shardmesh::detail {

/// Returns the error of the exception that is being handled: that of `exception`, errc::no_memory, or
/// errc::invalid_argument with the text of `what()`. Precondition: called in a handler.
error caught_error();

}  // namespace shardmesh::detail

export template <>
struct std::is_error_code_enum<shardmesh::errc> : std::true_type {};
