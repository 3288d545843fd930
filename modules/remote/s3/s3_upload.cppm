// SPDX-License-Identifier: Apache-2.0
// Not exported: writes one object, whole or in parts. An object appears when its last request succeeds.
module shardmesh.remote:s3_upload;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :http_client;
import :percent_encoding;
import :s3_connection;

namespace shardmesh::remote {

class s3_upload {
 public:
  s3_upload(const s3_connection& to, s3_name name, const put_condition& condition);

  // Writes the object and returns its ETag. errc::destination_exists when the condition does not hold.
  result<std::string> put(const byte_source& content);

 private:
  result<std::string> put_whole(const byte_source& content);
  result<std::string> put_parts(const byte_source& content);
  result<std::string> begin_parts();
  result<std::vector<std::string>> send_parts(const byte_source& content, const std::string& id);
  result<std::string> finish_parts(const std::string& id, std::span<const std::string> etags);
  // Sends the request that makes the object appear.
  result<http_response> complete(const s3_request& request);
  // Removes a new object if this very upload wrote it, after an error. Returns whether it did.
  bool remove_ours() const;
  // Ends the upload in parts after an error. Returns a hint that names what the server keeps: that upload, or one that
  // the server began although its answer was lost or damaged; or an empty text.
  std::string end_parts() const;
  // Decides about an answer to the request that makes the object appear.
  result<std::string> outcome(const s3_request& request, const http_response& answer);
  // Returns the ETag of the object if this very upload wrote it, although an answer was lost.
  result<std::optional<std::string>> is_ours() const;
  name_values conditions() const;
  // Looks whether the condition holds before the parts become the object: Ceph ignores the condition of that request.
  // errc::destination_exists
  result<void> check_condition() const;
  error condition_failed() const;
  // Returns whether to send the request again with new `conditions()`: the server has refused the version although the
  // object has it, so that it compares the other form of ETags.
  result<bool> changes_form(const http_response& answer);

  const s3_connection& to_;
  s3_name name_;
  put_condition condition_;
  std::string token_;                        // stored with the object, to recognise it
  std::string upload_id_;                    // of an upload in parts
  bool may_have_begun_ = false;              // the server may have an upload in parts
  bool is_bare_, has_changed_form_ = false;  // the form of the version in If-Match: without quotation marks
  bool is_completing_ = false;               // the last request was sent, and has no answer
};

}  // namespace shardmesh::remote
