// SPDX-License-Identifier: Apache-2.0
// Tests headers in the form that writers use, which one scan reads. Its results must equal those of the general reader.
// Each text is read twice; the second time, an added entry has a field that no writer uses and forces the general
// reader.
#include <catch2/catch_test_macros.hpp>
#include <safetensors_files.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

import shardmesh.safetensors;

using namespace shardmesh;

namespace {

constexpr std::string_view added_name = "\x01";  // sorts before all other names

// The content of a header, or why it is refused. Positions are left out, because the added entry moves them.
struct answer {
  bool is_read = false;
  std::vector<std::tuple<std::string, dtype, std::vector<std::int64_t>, std::int64_t, std::int64_t>> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  errc code = errc::ok;
  std::string key, text;
};

std::string without_positions(std::string text) {
  if (const auto at = text.find(added_name); at != std::string::npos) text.replace(at, 1, "the header");
  if (const auto at = text.find("\\x01"); at != std::string::npos) text.replace(at, 4, "the header");
  // A JSON error quotes the text that was read last. It begins with a bracket, which the added entry has moved.
  if (const auto at = text.find("last read: '"); at != std::string::npos) text.erase(at, text.rfind('\'') - at);
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

answer answer_to(const std::string& json, std::size_t data) {
  const std::string file = safetensors_files::bytes(json, data);
  const memory_source source(std::as_bytes(std::span(file)), "f");
  const auto header = safetensors::parse_header(source);
  answer made;
  made.is_read = header.has_value();
  if (!header) {
    made.code = header.error().code;
    made.key = header.error().key;
    made.text = without_positions(to_string(header.error()));
    return made;
  }
  made.metadata = header->metadata;
  for (const safetensors::entry& e : header->entries)
    if (e.name != added_name)
      made.entries.emplace_back(e.name, e.type, std::vector(e.shape.begin(), e.shape.end()),
                                e.begin - header->data_begin, e.end - header->data_begin);
  return made;
}

std::string with_unusual_entry(std::string json) {
  const std::size_t next = json.find_first_not_of(" \n\t\r", 1);
  const bool is_alone = next != std::string::npos && json[next] == '}';
  return json.insert(
      1, std::string(R"("\u0001":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":0})") + (is_alone ? "" : ","));
}

bool check_both_ways(const std::string& json, std::size_t data) {
  INFO(json);
  const answer usual = answer_to(json, data);
  const answer any = answer_to(with_unusual_entry(json), data);
  CHECK(usual.is_read == any.is_read);
  CHECK(usual.code == any.code);
  CHECK(usual.key == any.key);
  CHECK(usual.text == any.text);
  CHECK(usual.entries == any.entries);
  CHECK(usual.metadata == any.metadata);
  return usual.is_read;
}

// Makes correct headers, with all the variants that the format leaves to writers.
class header_maker {
 public:
  explicit header_maker(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }

  std::pair<std::string, std::size_t> make() {
    std::vector<std::string> members;
    std::size_t end = 0;
    for (std::size_t i = 0, count = below(6); i < count; ++i) members.push_back(entry(i, end));
    if (below(2) == 0) {
      std::string texts;
      for (std::size_t i = 0, count = below(4); i < count; ++i)
        texts += (i == 0 ? "" : ",") + text(i) + space() + ":" + text(below(3));
      members.insert(members.begin() + static_cast<std::ptrdiff_t>(below(members.size() + 1)),
                     "\"__metadata__\":{" + texts + "}");
    }
    std::string json = "{" + space();
    for (std::size_t i = 0; i < members.size(); ++i) json += (i == 0 ? "" : ",") + space() + members[i] + space();
    return {json + "}" + std::string(below(8), ' '), end};
  }

 private:
  std::string space() {
    constexpr std::array<std::string_view, 6> kinds{"", "", "", " ", "\n", "\t\r "};
    return std::string(kinds[below(kinds.size())]);
  }
  // Different numbers give different texts.
  std::string text(std::size_t number) {
    constexpr std::array<std::string_view, 8> kinds{"layers.weight",         "layers/weight",     R"(layers\"weight)",
                                                    R"(layers\\)",           R"(layers\u00e9\n)", "layers\xC3\xA9",
                                                    R"(layers\ud83d\ude00)", "layers\x7F"};
    return "\"" + std::to_string(number) + std::string(kinds[below(kinds.size())]) + "\"";
  }
  std::string entry(std::size_t number, std::size_t& end) {
    constexpr std::array<std::pair<std::string_view, std::size_t>, 5> types{
        {{"U8", 1}, {"BF16", 2}, {"F32", 4}, {"F8_E4M3FNUZ", 1}, {"I64", 8}}};
    const auto [type, item] = types[below(types.size())];
    const std::size_t begin = end;
    std::size_t volume = 1;
    std::string shape;
    for (std::size_t d = 0, rank = below(4); d < rank; ++d) {
      const std::size_t size = below(4);
      shape += (d == 0 ? "" : ",") + space() + std::to_string(size) + space();
      volume *= size;
    }
    end += volume * item;
    std::array<std::string, 3> fields{"\"dtype\"" + space() + ":" + space() + "\"" + std::string(type) + "\"",
                                      "\"shape\":" + space() + "[" + shape + "]",
                                      "\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]"};
    std::shuffle(fields.begin(), fields.end(), random_);
    return text(number) + ":" + space() + "{" + fields[0] + "," + fields[1] + space() + "," + fields[2] + "}";
  }

  std::mt19937 random_;
};

}  // namespace

TEST_CASE("headers in all forms that writers may give them read as any header does") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    const auto [json, data] = header_maker(seed).make();
    INFO(seed);
    REQUIRE(check_both_ways(json, data));
  }
}

TEST_CASE("headers that were damaged are read, or refused with the same words, whatever form they have") {
  constexpr std::string_view likely = "\"\\{}[]:, 019-.eu\n\xC3\x80\x1F\x7F";
  std::size_t read = 0, refused = 0;
  for (std::uint32_t seed = 0; seed < 20000; ++seed) {
    header_maker maker(seed);
    auto [json, data] = maker.make();
    for (std::size_t edits = 1 + maker.below(3); edits > 0; --edits) {
      const std::size_t at = 1 + maker.below(json.size() - 1);
      const char c = likely[maker.below(likely.size())];
      switch (maker.below(4)) {
        case 0:
          json[at] = c;
          break;
        case 1:
          json.insert(at, 1, c);
          break;
        case 2:
          if (json.size() > 2) json.erase(at, 1);
          break;
        default:
          if (const char digit = json[at]; digit >= '0' && digit <= '9')
            json[at] = static_cast<char>('0' + maker.below(10));
      }
    }
    INFO(seed);
    ++(check_both_ways(json, data) ? read : refused);
  }
  CHECK(read > 1000);
  CHECK(refused > 10000);
}

TEST_CASE("what is nearly a header of the usual form is refused, or read, as it is in any other") {
  const auto with = [](const std::string& fields) { return "{\"weight\":{" + fields + "}}"; };
  const std::string dtype = "\"dtype\":\"U8\"", shape = "\"shape\":[4]", offsets = "\"data_offsets\":[0,4]";
  const std::string right = dtype + "," + shape + "," + offsets;
  std::string ranks = "1";
  for (int d = 0; d < 16; ++d) ranks += ",1";
  const std::vector<std::string> texts{
      with(right),
      with(dtype + "," + shape),
      with(dtype + "," + offsets),
      with(shape + "," + offsets),
      with(right + ","),
      with(right + "," + dtype),
      with(right + "," + shape),
      with(right + "," + offsets),
      with(right + ",\"more\":{}"),
      with(right) + "x",
      with(right) + with(right),
      with(right).substr(0, with(right).size() - 1),
      with("\"dtype\":8," + shape + "," + offsets),
      with("\"dtype\":\"U9\"," + shape + "," + offsets),
      with("\"dtype\":\"\\u00558\"," + shape + "," + offsets),
      with("\"d\\u0074ype\":\"U8\"," + shape + "," + offsets),
      with(dtype + ",\"shape\":4," + offsets),
      with(dtype + ",\"shape\":[04]," + offsets),
      with(dtype + ",\"shape\":[4.0]," + offsets),
      with(dtype + ",\"shape\":[4e0]," + offsets),
      with(dtype + ",\"shape\":[-4]," + offsets),
      with(dtype + ",\"shape\":[-0]," + offsets),
      with(dtype + ",\"shape\":[4,]," + offsets),
      with(dtype + ",\"shape\":[[4]]," + offsets),
      with(dtype + ",\"shape\":[null]," + offsets),
      with(dtype + ",\"shape\":[0,1000000000000000000]," + offsets),
      with(dtype + ",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]"),
      with(dtype + ",\"shape\":[9223372036854775808]," + offsets),
      with(dtype + ",\"shape\":[99999999999999999999999]," + offsets),
      with(dtype + ",\"shape\":[999999999999999999,999999999999999999]," + offsets),
      with(dtype + ",\"shape\":[" + ranks + "]," + offsets),
      with(dtype + "," + shape + ",\"data_offsets\":[0]"),
      with(dtype + "," + shape + ",\"data_offsets\":[0,4,4]"),
      with(dtype + "," + shape + ",\"data_offsets\":[4,0]"),
      with(dtype + "," + shape + ",\"data_offsets\":[1,5]"),
      with(dtype + "," + shape + ",\"data_offsets\":[0,999999999999999999]"),
      "{\"weight\":[]}",
      "{\"weight\":null}",
      "{\"weight\":{}}",
      "{\"weight\"}",
      "{" + with(right).substr(1, with(right).size() - 2) + "," + with(right).substr(1),
      "{\"__metadata__\":{\"format\":\"pt\"},\"__metadata__\":{},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":\"1\",\"\\u0061\":\"2\"},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":1},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":{}},\"weight\":{" + right + "}}",
      "{\"__metadata__\":[],\"weight\":{" + right + "}}",
      "{\"\\u005f_metadata__\":{\"a\":\"1\"},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":\"\\ud800\"},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":\"\xFF\"},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":\"\n\"},\"weight\":{" + right + "}}",
      "{\"__metadata__\":{\"a\":\"\\q\"},\"weight\":{" + right + "}}",
      "{\"weight" + std::string(100, '\\') + "\":{" + right + "}}",
      "{\"weight" + std::string(101, '\\') + "\":{" + right + "}}",
      "{" + std::string(1000, '['),
      "{\"weight\":" + std::string(100000, '{'),
      "{",
      "{\"",
      "{\"\\",
      "{,}",
      "{} ",
      "{}\v",
      "{}{}"};
  std::size_t read = 0;
  for (const std::string& text : texts) read += check_both_ways(text, 4) ? 1U : 0U;
  CHECK(read > 4);
}
