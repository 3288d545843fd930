// SPDX-License-Identifier: Apache-2.0
// Tests the pickle writer: parsed pickles are the same when written again, protocol 2, and persistent ids.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pickles.hpp"
import shardmesh.pickle;

using namespace shardmesh;
using namespace pickles;
using namespace std::string_literals;
using namespace std::string_view_literals;
namespace data = checkpoint_data;

TEST_CASE("every golden .metadata parses, and is the same when written again") {
  const auto files = data::metadata_files();
  REQUIRE(files.size() > 25);
  for (const auto& file : files) {
    INFO(file);
    const auto bytes = data::read(file);
    const auto graph = pickle::graph::parse(std::span<const std::byte>(bytes));
    if (!graph) FAIL(to_string(graph.error()));
    CHECK(graph->consumed_bytes() == bytes.size());
    CHECK(graph->root().callable().global_name() == "Metadata");
    CHECK(graph->root().attribute("storage_data").size() > 0);
    CHECK(equal(graph->root(), written_again(graph->root()).root()));
    CHECK(equal(graph->root(), written_again(graph->root(), 2).root()));
  }
}

TEST_CASE("protocol 2 spells what it lacks as Python does") {
  const auto again = [](std::string_view text) {
    const auto graph = parsed(text);
    pickle::writer writer(2);
    writer.value(graph.root()).value();
    return std::move(writer).finish();
  };
  CHECK(again("\x80\4\x8c\1a\x94h\0\x86."sv) == bytes_of("\x80\2X\1\0\0\0aq\0h\0\x86q\1."sv));
  CHECK(again("\x80\4\x8c\1m\x8c\1C\x93."sv) == bytes_of("\x80\2cm\nC\nq\0."sv));
  CHECK(again("\x80\4C\2\0\xff."sv) ==
        bytes_of("\x80\2c_codecs\nencode\nq\0X\3\0\0\0\0\xc3\xbfX\6\0\0\0latin1q\1\x86Rq\2."sv));
  CHECK(again("\x80\5\x96\1\0\0\0\0\0\0\0\x80."sv) ==
        bytes_of("\x80\2cbuiltins\nbytearray\nq\0X\2\0\0\0\xc2\x80X\7\0\0\0latin-1q\1\x86Rq\2."sv));
  CHECK(again("\x80\4\x8f(K\1K\2\x90."sv) == bytes_of("\x80\2cbuiltins\nset\nq\0](K\1K\2e\x85Rq\1."sv));
  CHECK(again("\x80\4(K\1\x91."sv) == bytes_of("\x80\2cbuiltins\nfrozenset\nq\0](K\1e\x85Rq\1."sv));
  CHECK(again("\x80\4cm\nC\n)}\x92."sv) == bytes_of("\x80\2ccopyreg\n__newobj_ex__\nq\0cm\nC\nq\1)}q\2\x87Rq\3."sv));
  // A class in a class, as Python's pickler writes it.
  CHECK(again("\x80\4\x8c\1m\x8c\3C.D\x93."sv) ==
        bytes_of("\x80\2cbuiltins\ngetattr\nq\0cm\nC\nq\1X\1\0\0\0Dq\2\x86q\3Rq\4."sv));
  CHECK(again("\x80\4\x8c\1m\x8c\5C.D.E\x93."sv) ==
        bytes_of("\x80\2cbuiltins\ngetattr\nq\0h\0cm\nC\nq\1X\1\0\0\0Dq\2\x86q\3Rq\4X\1\0\0\0Eq\5\x86q\6Rq\7."sv));
  // Reading these bytes back gives the original values.
  const auto set = pickle::graph::parse(again("\x80\4\x8f(K\1K\2\x90."sv)).value();
  CHECK(pickle::sequence_items(set.root()).size() == 2);
  const auto content = pickle::graph::parse(again("\x80\4C\2\0\xff."sv)).value();
  CHECK(pickle::bytes_of(content.root()) == "\0\xff"s);
  std::string many = "\x80\4(";
  for (int i = 0; i < 300; ++i) many += "\x8c\3" + std::to_string(100 + i);
  const auto texts = parsed(many + "\x8c\003399t.");  // the 300th memo entry, whose number takes four bytes
  CHECK(equal(texts.root(), written_again(texts.root(), 2).root()));
}

TEST_CASE("what protocol 2 spells as a call has the same bytes from the second writing on") {
  const auto written = [](const pickle::value& root) {
    pickle::writer out(2);
    out.value(root).value();
    return std::move(out).finish();
  };
  const auto once_more = [&](const std::vector<std::byte>& bytes) {
    return written(pickle::graph::parse(std::span<const std::byte>(bytes)).value().root());
  };
  for (const std::string_view text :
       {"\x80\4\x8c\1m\x8c\5C.D.E\x93."sv, "\x80\4C\2\0\xff."sv, "\x80\4\x8f(C\2\0\xffK\1\x90."sv}) {
    const auto second = once_more(written(parsed(text).root()));
    CHECK(once_more(second) == second);
  }
}

TEST_CASE("a name with a line break is not written in protocol 2, where opcodes would follow it") {
  const auto graph = parsed("\x80\4\x8c\6m\nC\n).\x8c\1x\x93."sv);
  pickle::writer writer(2);
  const auto written = writer.value(graph.root());
  REQUIRE(!written);
  CHECK(written.error().code == errc::unsupported);
  CHECK(pickle::writer().value(graph.root()));
}

TEST_CASE("ids of persistent references are the caller's where it asks for it") {
  const auto graph = parsed("\x80\4\x8c\1kQ\x94h\0\x86."sv);
  pickle::writer writer;
  int asked = 0;
  const auto write_id = [&](const pickle::value& id) {
    CHECK(id.text() == "k");
    ++asked;
    writer.begin_tuple();
    writer.value(id).value();
    writer.integer(7);
    writer.end_tuple();
  };
  writer.value(graph.root(), 1 << 20, write_id).value();
  const auto again = pickle::graph::parse(std::move(writer).finish()).value();
  CHECK(asked == 1);
  const auto items = again.root().items();
  CHECK(items[0].identity() == items[1].identity());
  CHECK(items[0].persistent_id().items()[0].text() == "k");
  CHECK(items[0].persistent_id().items()[1].as_int() == 7);
}

TEST_CASE("what the writer writes is what the reader reads") {
  pickle::writer w;
  w.begin_dict();
  w.text("size");
  w.global("torch", "Size");
  w.begin_tuple();
  w.begin_tuple();
  for (const std::int64_t value : {0LL, 255LL, 256LL, 65536LL, -1LL, 1LL << 31, 1LL << 40, -(1LL << 62)})
    w.integer(value);
  w.end_tuple();
  w.end_tuple();
  w.reduce();
  w.text("object");
  w.global("m", "C");
  w.begin_tuple();
  w.end_tuple();
  w.newobj();
  const auto object = w.memoize();
  w.begin_dict();
  w.text("x");
  w.floating(-0.5);
  w.end_dict();
  w.build();
  w.text("again");
  w.recall(object);
  w.end_dict();
  const auto graph = pickle::graph::parse(std::move(w).finish()).value();
  const auto sizes = graph.root().find("size").args().items()[0].items();
  std::vector<std::int64_t> values;
  for (const pickle::value size : sizes) values.push_back(size.as_int().value());
  CHECK(values == std::vector<std::int64_t>{0, 255, 256, 65536, -1, 1LL << 31, 1LL << 40, -(1LL << 62)});
  CHECK(graph.root().find("object").attribute("x").as_float() == -0.5);
  CHECK(graph.root().find("again").identity() == graph.root().find("object").identity());
}
