// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
module shardmesh.nemo;

import shardmesh.checkpoint_core;
import shardmesh.storage;

namespace shardmesh::nemo {
namespace {

// Returns the error of a failed read: an unreadable file is not a file of another format.
result<bool> looks_like_gzip(const byte_source& source) {
  std::array<std::byte, 2> head{};
  if (source.size_bytes() < 2) return false;
  SHARDMESH_TRY(source.read(0, head));
  return head == std::array{std::byte{0x1f}, std::byte{0x8b}};
}

}  // namespace

result<archive> archive::open(const std::filesystem::path& file, file_pool pool, read_budget& budget) {
  SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool.open(file));
  archive made;
  SHARDMESH_TRY(made.is_compressed_, looks_like_gzip(*source));
  if (made.is_compressed_) {
    SHARDMESH_TRY(source, open_decoding_source(std::move(source), codec::gzip, &budget, file.string()));
  }
  if (!looks_like_tar(*source))
    return fail(errc::bad_format, "is not a .nemo file")
        .with_file(file.string())
        .with_values("a tar archive, plain or compressed with gzip", "other data");
  SHARDMESH_TRY(made.members_, read_tar(*source, budget));
  made.bytes_ = std::move(source);
  return made;
}

const tar_member* archive::find(std::string_view name) const {
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](const tar_member& one) { return one.name == name; });
  return found == members_.end() ? nullptr : &*found;
}

std::shared_ptr<const byte_source> archive::bytes_of(const tar_member& member) const {
  return std::make_shared<const shared_section>(bytes_, member.offset, member.size_bytes);
}

bool is_nemo_name(std::string_view name) {
  return name.ends_with(".nemo");
}

}  // namespace shardmesh::nemo
