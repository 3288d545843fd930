// SPDX-License-Identifier: Apache-2.0
#include "shard_list.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <new>
#include <utility>

#include "counted.hpp"

import shardmesh.core;

namespace tool {
namespace {

using namespace shardmesh;
namespace dom = simdjson::dom;

// Reads a list of whole numbers of at least 0; returns the reason if it cannot.
std::string read_numbers(simdjson::simdjson_result<dom::element> element, std::string_view what,
                         std::vector<std::int64_t>& out) {
  dom::array list;
  if (element.error() == simdjson::NO_SUCH_FIELD) return fmt::format("\"{}\" is missing", what);
  if (element.get(list) != simdjson::SUCCESS) return fmt::format("\"{}\" is not a list", what);
  for (const dom::element item : list) {
    std::int64_t value = 0;
    if (item.get(value) != simdjson::SUCCESS)
      return item.is<std::uint64_t>() ? fmt::format("\"{}\" has a number that does not fit in 64 bits", what)
                                      : fmt::format("\"{}\" has an entry that is not a whole number: {}", what,
                                                    escaped(simdjson::minify(item)).substr(0, 60));
    if (value < 0) return fmt::format("\"{}\" has a negative number: {}", what, value);
    out.push_back(value);
  }
  return {};
}

std::string read_rank(simdjson::simdjson_result<dom::element> element, owner_id& rank) {
  rank = no_rank;
  if (element.error() == simdjson::NO_SUCH_FIELD || element.is_null()) return {};
  std::string_view text;
  if (element.get(text) != simdjson::SUCCESS) return "\"placement\" is not a string";
  const auto device = parse_remote_device(text);
  if (!device) return to_string(device.error());
  if (device->rank && *device->rank >= 0) rank = *device->rank;
  return {};
}

// Buffers that are reused for each shard.
struct shard_room {
  std::vector<std::int64_t> offsets, sizes;
};

void read_shard(const dom::element& shard, std::int64_t index, shard_room& room, shard_list& list) {
  const auto bad = [&](const std::string& why) { list.report(fmt::format("shard {}: {}", index, why)); };
  if (!shard.is_object()) return bad("it is not an object");
  std::vector<std::int64_t>&offsets = room.offsets, &sizes = room.sizes;
  offsets.clear();
  sizes.clear();
  owner_id rank = no_rank;
  if (const auto why = read_numbers(shard["offsets"], "offsets", offsets); !why.empty()) return bad(why);
  if (const auto why = read_numbers(shard["sizes"], "sizes", sizes); !why.empty()) return bad(why);
  if (const auto why = read_rank(shard["placement"], rank); !why.empty()) return bad(why);
  if (offsets.size() != list.shape.rank() || sizes.size() != list.shape.rank())
    return bad(fmt::format("{} and {} for a tensor of {}", counted(offsets.size(), "offset"),
                           counted(sizes.size(), "size"), counted(list.shape.rank(), "dimension")));
  list.offsets.insert(list.offsets.end(), offsets.begin(), offsets.end());
  list.sizes.insert(list.sizes.end(), sizes.begin(), sizes.end());
  list.owners.push_back(rank);
}

// Reads the whole document.
void read_document(const dom::element& document, shard_list& list) {
  if (!document.is_object()) return list.report("the document is not an object");
  std::vector<std::int64_t> size;
  if (const auto why = read_numbers(document["size"], "size", size); !why.empty()) return list.report(why);
  if (size.size() > max_rank)
    return list.report(fmt::format("\"size\" has {} dimensions, but at most {} are supported", size.size(), max_rank));
  list.shape = extents(size);
  if (const auto valid = check_shape(list.shape); !valid) return list.report(to_string(valid.error()));
  dom::array shards;
  const auto element = document["shards"];
  if (element.error() == simdjson::NO_SUCH_FIELD) return list.report("\"shards\" is missing");
  if (element.get(shards) != simdjson::SUCCESS) return list.report("\"shards\" is not a list");
  std::int64_t index = 0;
  shard_room room;
  for (const dom::element shard : shards) read_shard(shard, index++, room, list);
}

}  // namespace

void shard_list::report(std::string line) {
  if (++problem_count <= 100) problems.push_back(std::move(line));
}

shard_list parse_shard_list(std::string_view text, std::string_view name) {
  shard_list list;
  const simdjson::padded_string bytes(text);
  if (!bytes.data()) throw std::bad_alloc();
  dom::parser parser;
  dom::element document;
  if (const auto code = parser.parse(bytes).get(document); code == simdjson::SUCCESS)
    read_document(document, list);
  else if (code == simdjson::MEMALLOC)
    throw std::bad_alloc();
  else
    list.report(fmt::format("{}: not JSON: {}", escaped(printable_url(name)), simdjson::error_message(code)));
  return list;
}

}  // namespace tool
