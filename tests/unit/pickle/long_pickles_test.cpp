// SPDX-License-Identifier: Apache-2.0
// Tests pickles that are so long that the parser saves memory: it keeps only the memo entries that are fetched, and
// shares equal arguments.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pickles.hpp"
import shardmesh.pickle;

using namespace shardmesh;
using namespace pickles;
using namespace std::string_literals;
using namespace std::string_view_literals;

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
