// SPDX-License-Identifier: Apache-2.0
// Compares path_key with std::variant<std::int64_t, std::string>, which it replaces in a third of the space.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.tree;

using namespace shardmesh;

namespace {

using model = std::variant<std::int64_t, std::string>;

std::vector<model> samples() {
  std::vector<model> all{std::int64_t{0},
                         std::int64_t{-1},
                         std::int64_t{1},
                         std::numeric_limits<std::int64_t>::min(),
                         std::numeric_limits<std::int64_t>::max(),
                         std::int64_t{0x3131313131313131}};
  for (const char c : {'a', 'b', '1', '\0', '\xff'})
    for (const std::size_t size : {0, 1, 7, 8, 9, 14, 15, 16, 17, 31, 32, 300}) all.emplace_back(std::string(size, c));
  all.emplace_back(std::string(15, 'a') + "b");
  all.emplace_back(std::string(16, 'a') + '\0');
  all.emplace_back(std::string("a\0b", 3));
  return all;
}

path_key to_key(const model& m) {
  return m.index() == 0 ? path_key(std::get<0>(m)) : path_key(std::get<1>(m));
}

bool same(const path_key& key, const model& m) {
  if (key.is_index() != (m.index() == 0)) return false;
  return key.is_index() ? key.index() == std::get<0>(m) : key.name() == std::get<1>(m);
}

}  // namespace

TEST_CASE("an integer key is a name to who does not ask, and another key than that name and that index") {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{7}, std::int64_t{-12345678901234}, std::int64_t{999'999'999'999'999}}) {
    const path_key key = path_key::of_integer(value), name(std::to_string(value)), index(value);
    CHECK(key.is_integer());
    CHECK_FALSE(key.is_index());
    CHECK(key.integer() == value);
    CHECK(key.name() == std::to_string(value));
    CHECK(key_text(key) == std::to_string(value));
    CHECK(key == path_key::of_integer(value));
    CHECK(hash_value(key) == hash_value(path_key::of_integer(value)));
    CHECK_FALSE(key == name);
    CHECK_FALSE(key == index);
    CHECK_FALSE(name.is_integer());
    CHECK_FALSE(index.is_integer());
    CHECK((index < key && key < name && !(name < key)));
    CHECK(hash_value(key) != hash_value(name));
    CHECK(to_string(path{"a", key, "b"}) == "a[" + std::to_string(value) + "].b");
    CHECK(dotted(path{"a", key, "b"}) == "a." + std::to_string(value) + ".b");
  }
  for (const std::int64_t value : {std::int64_t{1'000'000'000'000'000}, std::numeric_limits<std::int64_t>::min()}) {
    CHECK_FALSE(path_key::of_integer(value).is_integer());
    CHECK(path_key::of_integer(value) == path_key(std::to_string(value)));
  }
}

TEST_CASE("a key that only Python has is its text to who does not ask, and another key than that text") {
  using namespace std::string_literals;
  const std::string none = "\x80\2N."s, text(40, 'x'), pickle("\x80\2K\0.", 5);
  for (const auto& [name, pickled] : {std::pair("None"s, none), std::pair(text, pickle), std::pair(""s, text)}) {
    const path_key key = path_key::of_python(name, pickled);
    CHECK(key.is_python());
    CHECK_FALSE((key.is_index() || key.is_integer()));
    CHECK(key.name() == name);
    CHECK(key.pickled() == pickled);
    CHECK(key == path_key::of_python(name, pickled));
    CHECK(hash_value(key) == hash_value(path_key::of_python(name, pickled)));
    CHECK_FALSE(key == path_key(name));
    CHECK_FALSE(key == path_key::of_python(name, pickled + "."));
    CHECK_FALSE(key == path_key::of_python(name + ".", pickled));
    CHECK((path_key(name) < key && !(key < path_key(name)) && path_key(7) < key));
    CHECK(key < path_key::of_python(name, pickled + "."));
    path_key copy = key, moved = std::move(copy);
    copy = moved;
    moved = path_key("other");
    CHECK((copy == key && copy.pickled() == pickled));
  }
  CHECK((path_key::of_integer(1) < path_key("1") && path_key("1") < path_key::of_python("1", none)));
  CHECK(to_string(path{"a", path_key::of_python("None", none), "b"}) == "a[None].b");
  CHECK(dotted(path{"a", path_key::of_python("None", none), "b"}) == "a.None.b");
}

TEST_CASE("keys of every length hold, compare, order and hash as what they were made of") {
  const auto all = samples();
  for (const model& a : all) {
    const path_key key = to_key(a);
    CHECK(same(key, a));
    for (const model& b : all) {
      CHECK((key == to_key(b)) == (a == b));
      CHECK((key < to_key(b)) == (a < b));
      CHECK((key > to_key(b)) == (a > b));
      if (a == b) CHECK(hash_value(key) == hash_value(to_key(b)));
    }
  }
}

TEST_CASE("keys are copied, moved and assigned, to themselves too") {
  for (const model& a : samples())
    for (const model& b : samples()) {
      path_key x = to_key(a), y = to_key(b);
      const path_key copy = x;
      y = x;
      CHECK((same(x, a) && same(y, a) && same(copy, a)));
      x = std::move(y);
      CHECK(same(x, a));
      y = to_key(b);
      std::swap(x, y);
      CHECK((same(x, b) && same(y, a)));
      const path_key& self = x;
      x = self;
      CHECK(same(x, b));
    }
}

TEST_CASE("a million hashes of like keys are nearly all different") {
  std::vector<std::size_t> hashes;
  for (std::int64_t i = 0; i < 500'000; ++i) {
    hashes.push_back(hash_value(path_key(i)));
    hashes.push_back(hash_value(path_key("layer" + std::to_string(i))));
  }
  for (std::size_t& h : hashes) h &= 0xFFFFFFFF;  // the bits that a hash table uses
  std::sort(hashes.begin(), hashes.end());
  const auto distinct = std::unique(hashes.begin(), hashes.end()) - hashes.begin();
  CHECK(distinct > 999'000);  // 2^20 values in 2^32 places: about 116 collide by chance
}

TEST_CASE("copies of one key are used by several threads") {
  const path_key key = std::string(100, 'k');
  std::vector<std::thread> threads;
  std::vector<std::size_t> found(4);
  for (std::size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&key, &found, t] {
      for (int i = 0; i < 10'000; ++i) {
        const path own{key, i, key};
        found[t] += own[0].name().size();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::size_t f : found) CHECK(f == 1'000'000);
  CHECK(key.name() == std::string(100, 'k'));
}
