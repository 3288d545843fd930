// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <pugixml.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.remote;

import :s3_answers;

namespace shardmesh::remote {
namespace {

// pugixml expands no external entities and reads no files.
result<pugi::xml_node> root_of(pugi::xml_document& document, std::span<const std::byte> body, const char* name) {
  const pugi::xml_parse_result parsed = document.load_buffer(body.data(), body.size(), pugi::parse_default);
  const pugi::xml_node root = document.document_element();
  if (parsed && std::string_view(root.name()) == name) return root;
  return fail(errc::bad_format, fmt::format("the server's answer is not a document <{}>{}", name,
                                            parsed ? "" : fmt::format(" ({})", parsed.description())));
}

result<std::int64_t> size_in(std::string_view text) {
  std::int64_t size = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (problem == std::errc() && end == text.data() + text.size() && size >= 0) return size;
  return fail(errc::bad_format, "an object's size in the server's listing is not a number")
      .with_values("a size in bytes", escaped(text.substr(0, 40)));
}

// The name of `key` below `prefix`; nothing for the prefix itself.
result<std::string> name_below(std::string_view key, std::string_view prefix) {
  if (key.substr(0, prefix.size()) != prefix)
    return fail(errc::bad_format, "the server's listing contains a key outside of the prefix")
        .with_values(escaped(prefix), escaped(key.substr(0, 200)));
  key.remove_prefix(prefix.size());
  if (key.ends_with('/')) key.remove_suffix(1);
  if (key.find('/') != std::string_view::npos)
    return fail(errc::bad_format, "the server's listing ignores the delimiter")
        .with_values("", escaped(key.substr(0, 200)));
  return std::string(key);
}

}  // namespace

std::string unquoted(std::string_view etag) {
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

result<s3_listing> parse_s3_listing(std::span<const std::byte> body, std::string_view prefix) {
  pugi::xml_document document;
  SHARDMESH_TRY(const pugi::xml_node root, root_of(document, body, "ListBucketResult"));
  s3_listing page;
  for (const pugi::xml_node entry : root.children("Contents")) {
    SHARDMESH_TRY(std::string name, name_below(entry.child_value("Key"), prefix));
    // A key that ends in a slash is the marker of a folder that a console made.
    const bool is_marker = name.empty() || std::string_view(entry.child_value("Key")).ends_with('/');
    page.has_marker |= is_marker;
    if (is_marker) continue;
    SHARDMESH_TRY(const std::int64_t size, size_in(entry.child_value("Size")));
    page.objects.push_back({std::move(name), false, size, entry.child_value("ETag")});
  }
  for (const pugi::xml_node entry : root.children("CommonPrefixes")) {
    SHARDMESH_TRY(std::string name, name_below(entry.child_value("Prefix"), prefix));
    if (!name.empty()) page.objects.push_back({std::move(name), true, 0, {}});
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.next = root.child_value("NextContinuationToken");
    if (page.next.empty())
      return fail(errc::bad_format, "the server's listing is cut off, and has no token for the rest");
  }
  return page;
}

result<s3_upload_list> parse_s3_uploads(std::span<const std::byte> body) {
  pugi::xml_document document;
  SHARDMESH_TRY(const pugi::xml_node root, root_of(document, body, "ListMultipartUploadsResult"));
  s3_upload_list page;
  for (const pugi::xml_node one : root.children("Upload")) {
    page.uploads.push_back({one.child_value("Key"), one.child_value("UploadId"), one.child_value("Initiated")});
    if (page.uploads.back().key.empty() || page.uploads.back().id.empty())
      return fail(errc::bad_format, "the server's list of unfinished uploads has one without a key or an identifier");
  }
  if (std::string_view(root.child_value("IsTruncated")) != "true") return page;
  page.next_key = root.child_value("NextKeyMarker");
  page.next_id = root.child_value("NextUploadIdMarker");
  if (page.next_key.empty())
    return fail(errc::bad_format, "the server's list of unfinished uploads is cut off, and has no key for the rest");
  return page;
}

result<s3_part_list> parse_s3_parts(std::span<const std::byte> body) {
  pugi::xml_document document;
  auto root = root_of(document, body, "ListPartsResult");
  if (!root) root = root_of(document, body, "ListPartsResponse");  // of moto
  if (!root) return std::move(root).error();
  s3_part_list page;
  for (const pugi::xml_node one : root->children("Part")) {
    SHARDMESH_TRY(const std::int64_t size, size_in(one.child_value("Size")));
    page.bytes = checked_add(page.bytes, size).value_or(std::numeric_limits<std::int64_t>::max());
  }
  if (std::string_view(root->child_value("IsTruncated")) == "true")
    page.next = root->child_value("NextPartNumberMarker");
  return page;
}

std::optional<s3_failure> parse_s3_failure(std::span<const std::byte> body) {
  pugi::xml_document document;
  const auto root = root_of(document, body, "Error");
  if (!root) return std::nullopt;
  return s3_failure{root->child_value("Code"), root->child_value("Message"), root->child_value("Region"),
                    root->child_value("Endpoint")};
}

result<std::string> s3_text(std::span<const std::byte> body, const char* root, const char* element) {
  pugi::xml_document document;
  SHARDMESH_TRY(const pugi::xml_node node, root_of(document, body, root));
  std::string text = node.child_value(element);
  if (text.empty()) return fail(errc::bad_format, fmt::format("the server's answer has no <{}>", element));
  return text;
}

std::string s3_completion(std::span<const std::string> etags) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  for (std::size_t i = 0; i < etags.size(); ++i) {
    pugi::xml_node part = root.append_child("Part");
    part.append_child("PartNumber").text().set(static_cast<unsigned>(i + 1));
    part.append_child("ETag").text().set(etags[i].c_str());
  }
  struct text_writer final : pugi::xml_writer {
    std::string text;
    void write(const void* data, std::size_t size) override { text.append(static_cast<const char*>(data), size); }
  } out;
  document.save(out, "", pugi::format_raw);
  return std::move(out.text);
}

}  // namespace shardmesh::remote
