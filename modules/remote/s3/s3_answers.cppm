// SPDX-License-Identifier: Apache-2.0
// Not exported: the XML documents of S3's interface, which Google's XML interface shares. They come from a server, and
// are not trusted: sizes are checked, and names are only compared and shown.
module shardmesh.remote:s3_answers;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::remote {

// One page of ListObjectsV2 with the delimiter "/".
struct s3_listing {
  std::vector<stored_object> objects;  // names are relative to the prefix; folders have no slash at their end
  bool has_marker = false;             // an object whose key is the prefix: a console makes one for a folder
  std::string next;                    // the token of the next page; empty: this was the last one
};

// Parses one page. `prefix` is that of the request; names that do not begin with it are an error.
// errc::bad_format
result<s3_listing> parse_s3_listing(std::span<const std::byte> body, std::string_view prefix);

// One page of ListMultipartUploads.
struct s3_upload_list {
  struct entry {
    std::string key, id;
    std::string began;  // as the server spells it
  };
  std::vector<entry> uploads;
  std::string next_key, next_id;  // where the next page begins; an empty key: this was the last one
};
// errc::bad_format
result<s3_upload_list> parse_s3_uploads(std::span<const std::byte> body);

// One page of ListParts.
struct s3_part_list {
  std::int64_t bytes = 0;  // of all parts of the page
  std::string next;        // empty: this was the last page
};
// errc::bad_format
result<s3_part_list> parse_s3_parts(std::span<const std::byte> body);

// An <Error>: the code ("AccessDenied"), the message, and the region that answers PermanentRedirect name.
struct s3_failure {
  std::string code, message, region, endpoint;
};
// Returns nothing when the body is not an <Error>. An answer with status 200 can hold one.
std::optional<s3_failure> parse_s3_failure(std::span<const std::byte> body);

// Returns the text of one element below the root, such as UploadId or ETag; errc::bad_format when there is none.
result<std::string> s3_text(std::span<const std::byte> body, const char* root, const char* element);

// The body of CompleteMultipartUpload, of the parts' ETags in order.
std::string s3_completion(std::span<const std::string> etags);

// Returns an ETag without quotes.
std::string unquoted(std::string_view etag);

}  // namespace shardmesh::remote
