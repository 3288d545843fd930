// SPDX-License-Identifier: Apache-2.0
// Tests errors that carry several problems (which are kept, how they are counted, and their text), and errors made of
// exceptions.
#include <catch2/catch_test_macros.hpp>

#include <cerrno>
#include <new>
#include <string>
#include <utility>
#include <vector>

import shardmesh.core;

using namespace shardmesh;

namespace {

error missing(const std::string& key) {
  return fail(errc::missing_key, "is missing").with_key(key);
}

std::vector<error> many_missing(int count) {
  std::vector<error> made;
  for (int i = 0; i < count; ++i) made.push_back(missing(std::to_string(i)));
  return made;
}

}  // namespace

TEST_CASE("an error of one problem has no others") {
  const error e = missing("a");
  CHECK(e.others.empty());
  CHECK(e.problem_count() == 1);
  CHECK(e.problems() == std::vector<error>{missing("a")});
  CHECK(fail_all({missing("a")}) == e);
}

TEST_CASE("an error of several problems is the first of them, and carries the others in their order") {
  const error e = fail_all({missing("a"), fail(errc::narrowing, "loses values").with_key("b"), missing("c")});
  CHECK(e.code == errc::missing_key);
  CHECK(e.key == "a");
  CHECK(e.others == std::vector<error>{fail(errc::narrowing, "loses values").with_key("b"), missing("c")});
  CHECK(e.more == 0);
  CHECK(e.problem_count() == 3);
  CHECK(e.problems() ==
        std::vector<error>{missing("a"), fail(errc::narrowing, "loses values").with_key("b"), missing("c")});
}

TEST_CASE("a hundred problems are kept, and the further ones counted") {
  const error full = fail_all(many_missing(100));
  CHECK(full.problems() == many_missing(100));
  CHECK(full.more == 0);
  const error over = fail_all(many_missing(250), 5);
  CHECK(over.problems() == many_missing(100));
  CHECK(over.more == 155);
  CHECK(over.problem_count() == 255);
}

TEST_CASE("problems that the caller dropped are counted") {
  const error e = fail_all({missing("a")}, 9);
  CHECK(e.others.empty());
  CHECK(e.problem_count() == 10);
  CHECK(e.problems() == std::vector<error>{missing("a")});
}

TEST_CASE("an error that has others brings them along") {
  const error e =
      fail_all({fail_all({missing("a"), missing("b")}, 1), missing("c"), fail_all({missing("d"), missing("e")}, 2)}, 4);
  CHECK(e.problems() == std::vector<error>{missing("a"), missing("b"), missing("c"), missing("d"), missing("e")});
  CHECK(e.more == 7);
  for (const error& other : e.others) CHECK(other.problem_count() == 1);
}

TEST_CASE("the text of an error ends with the number of the other problems") {
  CHECK(to_string(missing("a")) == "a: is missing");
  CHECK(to_string(fail_all({missing("a").with_hint("rename it"), missing("b")})) ==
        "a: is missing; rename it (and 1 other problem)");
  CHECK(to_string(fail_all(many_missing(250), 5)) == "0: is missing (and 254 other problems)");
  CHECK(to_string(fail_all({missing("a"), missing("b")}).problems().front()) == "a: is missing");
}

TEST_CASE("an exception's text counts the other problems") {
  CHECK(std::string(exception(fail_all({missing("a"), missing("b"), missing("c")})).what()) ==
        "a: is missing (and 2 other problems)");
}

TEST_CASE("what is added to an error with others belongs to its first problem") {
  const error e = fail_all({fail(errc::io, "cannot open"), missing("b")}).with_file("f").with_key("a");
  CHECK(e.problems() == std::vector<error>{fail(errc::io, "cannot open").with_file("f").with_key("a"), missing("b")});
}

TEST_CASE("errors are equal if their other problems and the numbers of dropped ones are") {
  const error e = fail_all({missing("a"), missing("b")}, 1);
  CHECK(e == fail_all({missing("a"), missing("b")}, 1));
  CHECK_FALSE(e == fail_all({missing("a"), missing("c")}, 1));
  CHECK_FALSE(e == fail_all({missing("a"), missing("b")}, 2));
  CHECK_FALSE(e == missing("a"));
}

TEST_CASE("a lack of memory is an error of the system, and not of a budget") {
  error why;
  try {
    throw std::bad_alloc();
  } catch (...) {
    why = detail::caught_error();
  }
  CHECK(why.code == errc::no_memory);
  CHECK(why.sys == ENOMEM);
}
