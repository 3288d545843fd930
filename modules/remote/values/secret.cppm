// SPDX-License-Identifier: Apache-2.0
// secret: a text that messages never show, and that leaves no copy in memory.
export module shardmesh.remote:secret;

import shardmesh.std;

export namespace shardmesh::remote {

/// A secret text: a key, a token, or a password. Its `to_string` is "***". Each object has a buffer of its own, which
/// is overwritten before it is freed. Copy the text of `reveal` only into requests.
class secret {
 public:
  secret() noexcept = default;
  explicit secret(std::string_view text);
  secret(const secret& other);
  secret(secret&& other) noexcept;
  secret& operator=(const secret& other);
  secret& operator=(secret&& other) noexcept;
  ~secret();

  /// Returns the text. The view is valid until the object is assigned or destroyed.
  std::string_view reveal() const noexcept { return {text_.get(), size_}; }
  bool empty() const noexcept { return size_ == 0; }

  friend bool operator==(const secret& a, const secret& b) noexcept { return a.reveal() == b.reveal(); }

 private:
  void wipe() noexcept;

  std::unique_ptr<char[]> text_;
  std::size_t size_ = 0;
};

/// Returns "***", or "" for an empty secret.
std::string to_string(const secret& hidden);

/// Overwrites and empties a text that held a secret.
void wipe(std::string& text) noexcept;

}  // namespace shardmesh::remote
