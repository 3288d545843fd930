// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.torch_file;

import :foreign_file;

namespace shardmesh::torch_file {
namespace {

constexpr std::string_view save_again = "load it in Python and torch.save a state dict of its tensors";

bool has_record(const zip_directory& directory, std::string_view ending) {
  for (const zip_record& record : directory.records())
    if (record.name.ends_with(ending)) return true;
  return false;
}

struct magic {
  std::string_view bytes, what, hint;
};
using namespace std::string_view_literals;
constexpr magic beginnings[] = {
    {"version https://git-lfs", "it is a pointer of Git LFS, not the file itself", "git lfs pull"},
    {"GGUF", "it is a GGUF file", "give it a name that ends in .gguf, in a file of its own"},
    {"\x89HDF", "it is an HDF5 file", save_again},
    {"\x93NUMPY", "it is a numpy array (.npy)", "give it a name that ends in .npy, in a file of its own"},
    {"\x1f\x8b", "it is compressed with gzip", "decompress it first"},
    {"\x28\xb5\x2f\xfd", "it is compressed with zstd", "decompress it first"},
    {"\xfd"
     "7zXZ",
     "it is compressed with xz", "decompress it first"},
    {"BZh", "it is compressed with bzip2", "decompress it first"},
};

}  // namespace

error not_torch_archive(const zip_directory& directory, const std::string& wanted) {
  if (has_record(directory, ".npy"))
    return fail(errc::unsupported, "it is an archive of numpy arrays (.npz)")
        .with_hint("give it a name that ends in .npz");
  if (has_record(directory, ".weights.h5"))
    return fail(errc::unsupported, "it is an archive of Keras").with_hint(std::string(save_again));
  return fail(errc::bad_format, fmt::format("the archive has no record \"{}\"", escaped(wanted)));
}

std::optional<error> foreign_beginning(std::span<const std::byte> first) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  for (const magic& known : beginnings)
    if (text.starts_with(known.bytes))
      return fail(errc::unsupported, std::string(known.what)).with_hint(std::string(known.hint));
  return std::nullopt;
}

error tensors_of_bare_pickle() {
  return fail(errc::unsupported, "a tensor was pickled by pickle.dump, as a file of its own inside an archive")
      .with_hint("load it in Python and write it with torch.save");
}

}  // namespace shardmesh::torch_file
