// SPDX-License-Identifier: Apache-2.0
// Tests the values that the pickle parser makes: shared and cyclic lists, records, text, integers, and inert callables.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstdint>
#include <string_view>

#include "pickles.hpp"
import shardmesh.pickle;

using namespace shardmesh;
using namespace pickles;
using namespace std::string_view_literals;
namespace data = checkpoint_data;

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

TEST_CASE("a text that Python cannot read is refused, and one with lone surrogates is not") {
  CHECK(parsed("X\3\0\0\0\xed\xb3\xbf."sv).root().text() == "\xed\xb3\xbf");
  for (const std::string_view text :
       {"X\4\0\0\0ww\xffw."sv, "\x8c\2\xc0\xaf."sv, "\x8d\1\0\0\0\0\0\0\0\xe9."sv, "X\13\0\0\0abcdefgh\xedZ!."sv}) {
    const auto refused = pickle::graph::parse(bytes_of(text));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::bad_pickle);
    CHECK(refused.error().message.find("not UTF-8") != std::string::npos);
  }
}

TEST_CASE("a class in a class has one name in every protocol") {
  CHECK(pickle::type_name(parsed("\x80\4\x8c\1m\x8c\5C.D.E\x93."sv).root()) == "m.C.D.E");
  const std::string_view called = "\x80\2cbuiltins\ngetattr\n(cbuiltins\ngetattr\n(cm\nC\nX\1\0\0\0DtRX\1\0\0\0EtR."sv;
  CHECK(pickle::type_name(parsed(called).root()) == "m.C.D.E");
  CHECK(pickle::global_text(parsed(called).root()) == "m.C.D.E");
  CHECK(pickle::type_name(parsed("cbuiltins\ngetattr\n(K\1X\1\0\0\0DtR."sv).root()) == "unknown");
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

TEST_CASE("POP takes a mark off where nothing lies above it") {
  const std::string_view bytes = "\x80\x02(0N."sv;
  const auto graph = pickle::graph::parse(std::as_bytes(std::span(bytes)));
  REQUIRE(graph);
  CHECK(graph->root().is_none());
}
