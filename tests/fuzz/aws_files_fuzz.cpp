// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as each of the shared files of the AWS tools, and chooses settings from what it
// reads. Every setting has a line of the file, and no error shows a text of it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>

import shardmesh.remote;

namespace {

using namespace shardmesh;
using namespace shardmesh::remote;

void check(const std::map<std::string, aws_section, std::less<>>& sections, std::string_view text) {
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  for (const auto& [name, section] : sections)
    for (const auto& [key, setting] : section)
      if (key.empty() || setting.line < 1 || setting.line > lines) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const aws_file_kind kind : {aws_file_kind::credentials, aws_file_kind::config}) {
    const auto files = parse_aws_file(text, "file", kind);
    if (!files) {
      if (files.error().file != "file" || !files.error().found.empty()) std::abort();
      continue;
    }
    check(files->profiles, text);
    check(files->sso_sessions, text);
    check(files->services, text);
    for (const auto& [name, section] : files->profiles)
      if (const auto settings = choose_s3_settings({}, {}, *files, name))
        if (const auto address = address_of(*settings, "bucket", "key"); address && address->host.empty()) std::abort();
  }
  return 0;
}
