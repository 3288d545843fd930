// SPDX-License-Identifier: Apache-2.0
// Tests malformed and hostile pickles: errors name the opcode and its offset, memory is bounded, and no changed byte
// does harm.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pickles.hpp"
import shardmesh.pickle;

using namespace shardmesh;
using namespace pickles;
using namespace std::string_literals;
using namespace std::string_view_literals;
namespace data = checkpoint_data;

namespace {

/// Walks all reachable values, up to a bound: parsing hostile input must leave a graph that can be walked.
std::size_t touch(const pickle::value& root) {
  std::set<std::uint64_t> seen;
  std::vector<pickle::value> pending{root};
  std::size_t sum = 0;
  while (!pending.empty()) {
    const pickle::value value = pending.back();
    pending.pop_back();
    if (!seen.insert(value.identity()).second) continue;
    sum += value.text().value_or("").size() + value.decimal().value_or("").size() + value.global_module().size() +
           value.global_name().size() + (value.bytes() ? value.bytes()->size() : 0) + (value.as_float() ? 1 : 0);
    for (const pickle::value part : value.items()) pending.push_back(part);
    for (const pickle::pair pair : value.pairs()) pending.push_back(pair.key), pending.push_back(pair.value);
    for (const pickle::value part : {value.callable(), value.args(), value.state(), value.appended(), value.assigned(),
                                     value.keyword_args(), value.persistent_id()})
      if (part) pending.push_back(part);
  }
  return sum;
}

}  // namespace

TEST_CASE("malformed pickles are refused with the opcode and its offset") {
  CHECK(to_string(problem_of("\x80\4a."sv)).find("byte 2 (APPEND)") != std::string::npos);
  CHECK(problem_of("").code == errc::bad_pickle);
  CHECK(to_string(problem_of("N")).find("without STOP") != std::string::npos);
  CHECK(to_string(problem_of("\x80\x63N."sv)).find("protocol 99") != std::string::npos);
  CHECK(to_string(problem_of("\x80\x06N."sv)).find("protocol 6") != std::string::npos);
  CHECK(to_string(problem_of("\x95\xff\0\0\0\0\0\0\0N."sv)).find("FRAME") != std::string::npos);
  CHECK(to_string(problem_of("\x8d\0\0\0\0\0\0\0\x40x."sv)).find("BINUNICODE8") != std::string::npos);
  CHECK(to_string(problem_of("h\7."sv)).find("memo has no entry 7") != std::string::npos);
  for (const std::string_view name : {"c\x81\nx\n."sv, "cx\n\x81\n."sv, "(i\x81\nx\n."sv, "(ix\n\x81\n."sv})
    CHECK(to_string(problem_of(name)).find("is not UTF-8") != std::string::npos);
  CHECK(to_string(problem_of("}(Nu.")).find("no value") != std::string::npos);
  CHECK(to_string(problem_of("\x97."sv)).find("buffers") != std::string::npos);
  CHECK(to_string(problem_of("K\1Nb."sv)).find("state of a integer") != std::string::npos);
  CHECK(to_string(problem_of(")N\x86(N\x81."sv)).find("NEWOBJ") != std::string::npos);
  CHECK(problem_of("(t0.").code == errc::bad_pickle);
  CHECK(problem_of("\xff"sv).code == errc::bad_pickle);
}

TEST_CASE("an absurd memo index costs no memory") {
  const auto graph = parsed(
      "Nr\xff\xff\xff\xff"
      "j\xff\xff\xff\xff\x86."sv);
  CHECK(graph.root().size() == 2);
  CHECK(graph.memory_bytes() < 4096);
}

TEST_CASE("a hundred thousand nested lists are parsed, written again and not recursed into") {
  std::string nested = "\x80\4"s;
  for (int i = 0; i < 100000; ++i) nested += ']';
  for (int i = 0; i < 99999; ++i) nested += 'a';
  const auto graph = parsed(nested + ".");
  CHECK(equal(graph.root(), written_again(graph.root()).root()));
}

TEST_CASE("memory stays within a small multiple of the input") {
  for (const std::string_view unit : {"]"sv, "}"sv, "(t"sv, "cm\nC\n)R"sv, "N2s"sv, ")\x85"sv, "]N a"sv, "K\1Q"sv}) {
    std::string text = "N";
    for (int i = 0; i < 20000; ++i) text += unit;
    const auto graph = pickle::graph::parse(bytes_of(text + "."));
    if (graph) CHECK(graph->memory_bytes() < 150 * text.size() + 4096);
  }
}

TEST_CASE("every truncation of a pickle is an error, and no changed byte does harm") {
  std::vector<std::filesystem::path> samples{fixtures / "plain_0.pkl", fixtures / "plain_2.pkl",
                                             fixtures / "plain_5.pkl",
                                             data::golden() / "single_rank" / "checkpoint" / ".metadata"};
  for (const auto& sample : samples) {
    const auto bytes = data::read(sample);
    for (std::size_t length = 0; length < bytes.size(); ++length)
      CHECK_FALSE(pickle::graph::parse(std::span(bytes).first(length)));
    auto changed = bytes;
    std::size_t total = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const std::byte flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
        changed[i] = bytes[i] ^ flip;
        const auto graph = pickle::graph::parse(std::span<const std::byte>(changed));
        if (graph) {
          total += touch(graph->root());
          pickle::writer writer;
          static_cast<void>(writer.value(graph->root(), 1 << 20));
        }
      }
      changed[i] = bytes[i];
    }
    CHECK(total > 0);
  }
}

TEST_CASE("corrupt golden metadata never runs code, and damaged streams are refused") {
  for (const char* name :
       {"truncated_metadata", "metadata_no_stop", "flipped_opcode", "flipped_memo_index", "frame_too_long",
        "string_length_huge", "stack_underflow", "protocol_99", "garbage_metadata"}) {
    INFO(name);
    const auto bytes = data::read(data::golden() / "corrupt" / name / "checkpoint" / ".metadata");
    const auto graph = pickle::graph::parse(std::span<const std::byte>(bytes));
    REQUIRE(!graph);
    CHECK(graph.error().code == errc::bad_pickle);
  }
  for (const char* name : {"evil_pickle", "evil_inside", "evil_eval", "evil_getattr", "memo_bomb", "deep_nesting"}) {
    INFO(name);
    const auto bytes = data::read(data::golden() / "corrupt" / name / "checkpoint" / ".metadata");
    const auto graph = pickle::graph::parse(std::span<const std::byte>(bytes));
    if (graph) touch(graph->root());
  }
}
