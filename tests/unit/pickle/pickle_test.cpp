// SPDX-License-Identifier: Apache-2.0
// Tests the pickle parser and writer: every protocol, inert callables, malformed and hostile streams, round trips, and
// memory use.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.pickle;

using namespace shardmesh;
using namespace std::string_literals;
using namespace std::string_view_literals;
namespace data = checkpoint_data;

namespace {

const std::filesystem::path fixtures = std::filesystem::path(SHARDMESH_TEST_DATA) / "pickle";

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

pickle::graph parsed(std::string_view text) {
  return pickle::graph::parse(bytes_of(text)).value();
}

error problem_of(std::string_view text) {
  const auto graph = pickle::graph::parse(bytes_of(text));
  REQUIRE(!graph);
  return graph.error();
}

/// Structural equality of two graphs. Pairs under comparison count as equal, so cycles end.
bool equal(const pickle::value& a, const pickle::value& b) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  std::vector<std::pair<pickle::value, pickle::value>> pending{{a, b}};
  while (!pending.empty()) {
    const auto [x, y] = pending.back();
    pending.pop_back();
    if (x.kind() != y.kind()) return false;
    if (!seen.insert({x.identity(), y.identity()}).second) continue;
    if (x.as_bool() != y.as_bool() || x.decimal() != y.decimal() || x.text() != y.text()) return false;
    if (x.as_float() && std::bit_cast<std::uint64_t>(*x.as_float()) != std::bit_cast<std::uint64_t>(*y.as_float()))
      return false;
    if (x.bytes() && !std::ranges::equal(*x.bytes(), *y.bytes())) return false;
    if (x.global_module() != y.global_module() || x.global_name() != y.global_name() || x.size() != y.size())
      return false;
    if (x.kind() == pickle::kind::dict) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        pending.push_back({x.pairs()[i].key, y.pairs()[i].key});
        pending.push_back({x.pairs()[i].value, y.pairs()[i].value});
      }
    } else {
      for (std::size_t i = 0; i < x.size(); ++i) pending.push_back({x.items()[i], y.items()[i]});
    }
    if (x.kind() == pickle::kind::record) {
      if (x.form() != y.form()) return false;
      pending.push_back({x.callable(), y.callable()});
      pending.push_back({x.args(), y.args()});
      pending.push_back({x.state(), y.state()});
      pending.push_back({x.appended(), y.appended()});
      pending.push_back({x.assigned(), y.assigned()});
      pending.push_back({x.keyword_args(), y.keyword_args()});
    }
    if (x.kind() == pickle::kind::persistent) pending.push_back({x.persistent_id(), y.persistent_id()});
  }
  return true;
}

pickle::graph written_again(const pickle::value& value, int protocol = 4) {
  pickle::writer writer(protocol);
  writer.value(value).value();
  return pickle::graph::parse(std::move(writer).finish()).value();
}

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

TEST_CASE("a shared list is one object, two equal lists are two") {
  const auto graph = parsed("(]q\0h\0]t."sv);
  const auto items = graph.root().items();
  CHECK(items[0].identity() == items[1].identity());
  CHECK(items[0].identity() != items[2].identity());
}

TEST_CASE("a list and a tuple that contain themselves are read, and written again as they were") {
  const auto graph = pickle::graph::parse(data::read(fixtures / "cycles.pkl")).value();
  const pickle::value list = graph.root().find("list"), tuple = graph.root().find("tuple");
  CHECK(list.items()[0].identity() == list.identity());
  CHECK(tuple.items()[0].items()[0].identity() == tuple.identity());
  const auto again = written_again(graph.root());
  CHECK(equal(graph.root(), again.root()));
  CHECK(again.root().find("list").items()[0].identity() == again.root().find("list").identity());
  const pickle::value copy = again.root().find("tuple");
  CHECK(copy.items()[0].items()[0].identity() == copy.identity());
}

TEST_CASE("callables are inert: a REDUCE of os.system is a record") {
  const auto graph = parsed("cos\nsystem\n(S'echo hello'\ntR.");
  CHECK(graph.root().kind() == pickle::kind::record);
  CHECK(graph.root().is_record_of("os", "system"));
  CHECK(graph.root().args().items()[0].text() == "echo hello");
}

TEST_CASE("records keep their form, arguments, items, entries and state") {
  const auto newobj = parsed("cm\nC\n)\x81}(X\1\0\0\0aK\1ub."sv);
  CHECK(newobj.root().form() == pickle::form::newobj);
  CHECK(newobj.root().attribute("a").as_int() == 1);
  CHECK_FALSE(newobj.root().attribute("b"));
  const auto extended = parsed("cm\nC\n)}(X\1\0\0\0kNu\x92(K\1K\2e(K\3K\4u."sv);
  CHECK(extended.root().form() == pickle::form::newobj_ex);
  CHECK(extended.root().keyword_args().find("k").is_none());
  CHECK(extended.root().appended().items()[1].as_int() == 2);
  CHECK(extended.root().assigned().pairs()[0].value.as_int() == 4);
  const auto instance = parsed("(I7\nim\nC\n.");
  CHECK(instance.root().form() == pickle::form::instance);
  CHECK(instance.root().is_record_of("m", "C"));
  CHECK(instance.root().args().items()[0].as_int() == 7);
  const auto object = parsed("(cm\nC\nI7\no.");
  CHECK(object.root().is_record_of("m", "C"));
  CHECK(object.root().args().size() == 1);
  const auto slots = parsed(
      "cm\nC\n)\x81N}(X\1\0\0\0sK\5u\x86"
      "b."sv);
  CHECK(slots.root().attribute("s").as_int() == 5);
  for (const auto* graph : {&newobj, &extended, &instance, &object, &slots})
    CHECK(equal(graph->root(), written_again(graph->root()).root()));
}

TEST_CASE("text strings resolve escapes; byte strings of Python 2 are text only when they are UTF-8") {
  CHECK(parsed("S'a\\n\\x41\\101\\'\\\\'\n.").root().text() == "a\nAA'\\");
  CHECK(parsed("V\\u2603\\U0001f600\xe9\n.").root().text() == "\u2603\U0001f600\u00e9");
  CHECK(parsed("U\2\xc3\xa9."sv).root().text() == "\u00e9");
  CHECK(parsed("U\2\xff\xa9."sv).root().kind() == pickle::kind::bytes);
  CHECK(parsed("S'\\xff'\n.").root().kind() == pickle::kind::bytes);
}

TEST_CASE("integers keep every bit") {
  CHECK(parsed("\x8a\x08\0\0\0\0\0\0\0\x80."sv).root().as_int() == INT64_MIN);
  CHECK(parsed("\x8a\x09\0\0\0\0\0\0\0\x80\0."sv).root().decimal() == "9223372036854775808");
  CHECK_FALSE(parsed("\x8a\x09\0\0\0\0\0\0\0\x80\0."sv).root().as_int());
  CHECK(parsed("\x8a\0."sv).root().as_int() == 0);
  CHECK(parsed("L-00012L\n.").root().decimal() == "-12");
  CHECK(parsed("I01\n.").root().as_bool() == true);
  CHECK(parsed("I-1\n.").root().as_int() == -1);
}

TEST_CASE("persistent ids and extension codes are inert") {
  CHECK(parsed("Pkey 1\n.").root().persistent_id().text() == "key 1");
  CHECK(parsed("K\5Q."sv).root().persistent_id().as_int() == 5);
  CHECK(parsed("\x82\7."sv).root().extension_code() == 7);
  CHECK(parsed("\x82\7."sv).root().kind() == pickle::kind::extension);
}

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

TEST_CASE("POP takes a mark off where nothing lies above it") {
  const std::string_view bytes = "\x80\x02(0N."sv;
  const auto graph = pickle::graph::parse(std::as_bytes(std::span(bytes)));
  REQUIRE(graph);
  CHECK(graph->root().is_none());
}

namespace {

// A list of `count` memoized texts, followed by `tail`'s opcodes. It is so long that the memo keeps only fetched
// entries.
std::string long_list(std::size_t count, std::string_view tail) {
  std::string text = "\x80\x04]\x94("s;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string item = "text number " + std::to_string(i);
    text += "\x8c" + std::string(1, static_cast<char>(item.size())) + item + "\x94";
  }
  return text += tail;
}

std::string get_4(std::uint32_t number) {
  std::string text = "j";
  for (int i = 0; i < 4; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

}  // namespace

TEST_CASE("a long pickle fetches from its memo what was put there") {
  constexpr std::size_t count = 5000;
  // Entry 0 is the list, entry i + 1 is text number i.
  const auto graph = parsed(long_list(count, get_4(1) + get_4(4097) + "h\x40" + get_4(5000) + get_4(0) + "e."));
  const pickle::items items = graph.root().items();
  REQUIRE(items.size() == count + 5);
  CHECK(items[count] == items[0]);
  CHECK(items[count + 1] == items[4096]);
  CHECK(items[count + 2] == items[63]);
  CHECK(items[count + 3].text() == "text number 4999");
  CHECK(items[count + 4] == graph.root());
}

TEST_CASE("a long pickle that fetches what its memo lacks is refused, and so is one that fetches it too early") {
  CHECK(problem_of(long_list(5000, get_4(5001) + "e.")).message.find("memo has no entry 5001") != std::string::npos);
  CHECK(problem_of(long_list(5000, get_4(0xffffffff) + "e.")).message.find("no entry 4294967295") != std::string::npos);
  // Entry 5001 is made after the opcode that fetches it.
  const std::string early = long_list(5000, get_4(5001) + "\x8c\1x\x94" + "e.");
  CHECK(problem_of(early).message.find("memo has no entry 5001") != std::string::npos);
}

TEST_CASE("a long pickle may number its memo in any order, and number an entry twice") {
  const auto put_4 = [](std::uint32_t number) { return "r" + get_4(number).substr(1); };
  const std::string put_again = "\x8c\1x" + put_4(3) + "\x8c\1y" + put_4(70000) + get_4(3) + get_4(70000);
  const auto graph = parsed(long_list(5000, put_again + "e."));
  const pickle::items items = graph.root().items();
  REQUIRE(items.size() == 5004);
  CHECK(items[5002].text() == "x");
  CHECK(items[5003].text() == "y");
  CHECK(items[2].text() == "text number 2");
}

TEST_CASE("dicts that grow in turn, with other values between their items, hold what was put into them") {
  constexpr int dicts = 3, rounds = 40, batch = 30;
  std::string text = "\x80\x04("s;
  for (int d = 0; d < dicts; ++d) text += "}\x94";
  for (int r = 0; r < rounds; ++r)
    for (int d = 0; d < dicts; ++d) {
      text += "h" + std::string(1, static_cast<char>(d)) + "(";
      for (int i = 0; i < batch; ++i) {
        const int key = r * batch + i;
        const std::string number{static_cast<char>(key & 0xff), static_cast<char>(key >> 8)};
        text += "M" + number + "K" + std::string(1, static_cast<char>(d)) + "M" + number + "\x86";  // key: (d, key)
      }
      text += "u0";  // the dict is on the stack twice
    }
  const auto graph = parsed(text + "t.");
  const pickle::items found = graph.root().items();
  REQUIRE(found.size() == dicts);
  for (int d = 0; d < dicts; ++d) {
    REQUIRE(found[static_cast<std::size_t>(d)].size() == rounds * batch);
    int key = 0;
    for (const auto [number, pair] : found[static_cast<std::size_t>(d)].pairs()) {
      CHECK(number.as_int() == key);
      CHECK(pair.items()[0].as_int() == d);
      CHECK(pair.items()[1].as_int() == key++);
    }
  }
}

TEST_CASE("calls of a long pickle with equal small tuples keep their arguments, and share the memory") {
  // torch.Size(((4, i),)) for i from 0 to 9, again and again; memo entry 0 is the list, 1 is the class.
  constexpr std::size_t calls = 10'000;
  std::string text =
      "\x80\x04]\x94(ctorch\nSize\n\x94"
      "0";
  for (std::size_t i = 0; i < calls; ++i) text += "h\1K\4K"s + static_cast<char>(i % 10) + "\x86\x94\x85\x94R\x94";
  const auto graph = parsed(text + "e.");
  const pickle::items records = graph.root().items();
  REQUIRE(records.size() == calls);
  for (std::size_t i = 0; i < calls; ++i) {
    REQUIRE(records[i].is_record_of("torch", "Size"));
    const pickle::items sizes = records[i].args().items()[0].items();
    REQUIRE(sizes.size() == 2);
    CHECK(sizes[0].as_int() == 4);
    CHECK(sizes[1].as_int() == static_cast<std::int64_t>(i % 10));
  }
  CHECK_FALSE(records[0] == records[10]);       // two objects with equal arguments
  CHECK(graph.memory_bytes() < calls * 5 * 8);  // a record and its list entry: four words, not seven
}

TEST_CASE("arguments that a long pickle fetches again are left alone, and so are those of a pickle with DUP") {
  const std::string size_4_7 = "h\1K\4K\7\x86\x94\x85\x94R\x94";  // the inner tuple, the arguments, the record
  std::string text =
      "\x80\x04]\x94(ctorch\nSize\n\x94"
      "0";
  for (int i = 0; i < 10'000; ++i) text += size_4_7;
  const std::uint32_t last = 2 + 3 * 9'999;  // the last call's inner tuple
  // Values made after the last call must not overwrite its arguments.
  const auto graph = parsed(text + "K\1K\2\x86" + get_4(last) + get_4(last + 1) + get_4(last + 2) + "e.");
  const pickle::items items = graph.root().items();
  REQUIRE(items.size() == 10'004);
  CHECK(items[10'000].items()[1].as_int() == 2);
  CHECK(items[10'001].items()[1].as_int() == 7);
  CHECK(items[10'002].items()[0] == items[10'001]);
  CHECK(items[10'003] == items[9'999]);
  CHECK(items[9'999].args() == items[10'002]);
  // DUP leaves the inner tuple on the stack as well.
  const auto twice = parsed(text +
                            "h\1K\4K\7\x86"
                            "2\x85R" +
                            "h\1K\4K\7\x86\x85RK\1K\2\x86" + "e.");
  const pickle::items found = twice.root().items();
  REQUIRE(found.size() == 10'004);
  CHECK(found[10'000].global_name() == "Size");
  CHECK(found[10'001].callable().items()[1].as_int() == 7);
  CHECK(found[10'002].args().items()[0].items()[1].as_int() == 7);
  CHECK(found[10'003].items()[1].as_int() == 2);
}

TEST_CASE("names that are found while a pickle is parsed are those of a run for names alone") {
  const auto check = [](const std::vector<std::byte>& bytes) {
    const auto named = pickle::named_graph::parse(bytes);
    const auto graph = pickle::graph::parse(bytes);
    REQUIRE(static_cast<bool>(named) == static_cast<bool>(graph));
    if (!named) {
      CHECK(named.error().message == graph.error().message);
      return;
    }
    CHECK(equal(named->graph.root(), graph->root()));
    const pickle::used_names alone = pickle::names_in(bytes);
    CHECK(named->names.is_cut == alone.is_cut);
    REQUIRE(named->names.names.size() == alone.names.size());
    for (std::size_t i = 0; i < alone.names.size(); ++i) {
      const pickle::used_name &one = named->names.names[i], &other = alone.names[i];
      INFO(other.text);
      CHECK(one.text == other.text);
      CHECK(one.count == other.count);
      CHECK(one.harmless == other.harmless);
      CHECK(one.dangerous == other.dangerous);
    }
  };
  std::vector<std::filesystem::path> files = data::metadata_files();
  for (const auto& entry : std::filesystem::directory_iterator(fixtures))
    if (entry.path().extension() == ".pkl") files.push_back(entry.path());
  for (const auto& file : files) {
    INFO(file);
    check(data::read(file));
  }
  // Calls of getattr, calls of something that is not a global, persistent ids, an extension, and pickles after the
  // first one.
  check(
      bytes_of("\x80\x02"
               "cbuiltins\ngetattr\nq\0cos\nX\6\0\0\0systemq\1\x86Rq\2X\2\0\0\0ls\x85R."sv));
  check(bytes_of("(cm\nA\ncm\nB\nK\1Q\x82\5t."sv));
  check(bytes_of("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R.\x80\2cm\nA\n."sv));
  check(bytes_of("\x80\2N.rest"sv));
}
