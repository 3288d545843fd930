# SPDX-License-Identifier: Apache-2.0
"""Checks the generator of the reference pages: the walk over interfaces, comments as Markdown, and the page of a small
room.

    reference_test.py ROOT
"""
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "docs/site"), str(ROOT / "tests/static")]
import entries
import exported_names
import interfaces
import pages
import reference

SMALL = '''// SPDX-License-Identifier: Apache-2.0
// small: a room for this test. Not here: others.
export module shardmesh.small;

import shardmesh.std;

namespace shardmesh {
struct hidden {};
export class shown;  // said here
}  // namespace shardmesh

export namespace shardmesh {

/// What may go wrong.
enum class trouble : int {
  none,
  lost,  // a file | is gone
};

struct make_options {
  extent most{};
};

/// Makes an extent.
class source {
 public:
  /// The next one.
  extent next();
};

/// A shape of `n` things.
struct extent {
  int n = 0;  // of things
  friend bool operator==(const extent&, const extent&) = default;
};

/// Holds T's. Moves.
template <class T>
  requires(sizeof(T) > 1 && requires(T t) { t.size(); })
class [[nodiscard("keep it")]] holder {
 public:
  holder() : count_{0}, text_("{") {}
  holder(const holder&) = SHARDMESH_REFUSE("a holder is not copied");
  /// How many, and whether there are any.
  int size(int unit = 1,
           bool rounded = false) const { return count_; }
  bool empty() const noexcept { return count_ == 0; }

  explicit operator bool() const { return !empty(); }

 private:
  int count_ = 0;
  const char* text_;
};

/// A holder of `count` things.
/// \\param count  number of things
/// \\returns the holder. \\errors errc::overflow, errc::no_memory: too many <things>
/// Cost: O(count).
template <class T>
holder<T> make(extent count,
               int more = 1);
/// The same, of none.
template <class T>
holder<T> make(const make_options& options) {
  if (true) return {};
}
inline constexpr int most = 3;

namespace detail {
int inner();
}
}  // namespace shardmesh

export template <>
struct std::hash<shardmesh::extent> {};
'''

# (kind, name, text, comment, body, group, exported)
DECLARATIONS = [
    ("type", "hidden", "struct hidden", [], "", 1, False),
    ("type", "shown", "class shown;  // said here", [], "", 1, True),
    ("enum", "trouble", "enum class trouble : int", ["What may go wrong."], "\n  none,\n  lost,  // a file | is gone\n", 2, True),
    ("type", "make_options", "struct make_options", [], "\n  extent most{};\n", 3, True),
    ("type", "source", "class source", ["Makes an extent."], "\n public:\n  /// The next one.\n  extent next();\n", 4, True),
    ("type", "extent", "struct extent", ["A shape of `n` things."],
     "\n  int n = 0;  // of things\n  friend bool operator==(const extent&, const extent&) = default;\n", 5, True),
    ("type", "holder", 'template <class T>\n  requires(sizeof(T) > 1 && requires(T t) { t.size(); })\nclass [[nodiscard("keep it")]] holder',
     ["Holds T's. Moves."], None, 6, True),
    ("function", "make", "template <class T>\nholder<T> make(extent count,\n               int more = 1);",
     ["A holder of `count` things.", "\\param count  number of things",
      "\\returns the holder. \\errors errc::overflow, errc::no_memory: too many <things>", "Cost: O(count)."], "", 7, True),
    ("function", "make", "template <class T>\nholder<T> make(const make_options& options);", ["The same, of none."], "", 8, True),
    ("variable", "most", "inline constexpr int most = 3;", [], "", 8, True),
    ("function", "inner", "int inner();", [], "", 9, True),
    ("type", "hash", "template <>\nstruct std::hash<shardmesh::extent>", [], "", 10, True),
]

GROUP_PAGE = '''# small

Room [small](index.md) · `import shardmesh.small;` · `modules/small/small.cppm`

a room for this test. Not here: others.

## `trouble` {#trouble}

*enum* · `import shardmesh.small;`

What may go wrong.

```cpp
enum class trouble : int;
```

| value | |
|---|---|
| <a id="trouble-none"></a>`none` |  |
| <a id="trouble-lost"></a>`lost` | a file \\| is gone |

## `make_options` {#make_options}

*struct* · `import shardmesh.small;`


```cpp
struct make_options {
  extent most{};
};
```

**Functions that take it:**

- [`make`](../small/small.md#make-2): The same, of none

## `source` {#source}

*class* · `import shardmesh.small;`

Makes an extent.

```cpp
class source;
```

### `next` {#next}

```cpp
extent next();
```

The next one.

## `extent` {#extent}

*struct* · `import shardmesh;`

A shape of `n` things.

```cpp
struct extent {
  int n = 0;  // of things
  friend bool operator==(const extent&, const extent&) = default;
};
```

**Functions that take it:**

- [`make`](../small/small.md#make): A holder of `count` things

**Members that give it:** [`source::next`](../small/small.md#next)

**Types that name it:** [`make_options`](../small/small.md#make_options), [`source`](../small/small.md#source)

## `holder` {#holder}

*class* · `import shardmesh;`

Holds T's. Moves.

```cpp
template <class T>
  requires(sizeof(T) > 1 && requires(T t) { t.size(); })
class [[nodiscard("keep it")]] holder;
```

### `holder` {#holder-2}

```cpp
holder();
```


### `size`, `empty` {#size}

```cpp
int size(int unit = 1,
         bool rounded = false) const;
bool empty() const noexcept;
```

How many, and whether there are any.

### `operator bool` {#operator-bool}

```cpp
explicit operator bool() const;
```


**Functions that give it:**

- [`make`](../small/small.md#make): A holder of `count` things
- [`make`](../small/small.md#make-2): The same, of none

## `shown` {#shown}

*class* · `import shardmesh.small;`


```cpp
class shown;  // said here
```

## `make` {#make}

```cpp
template <class T>
holder<T> make(extent count,
               int more = 1);
```

A holder of `count` things.

- `count`: number of things

**Returns:** the holder.

**Errors:** `errc::overflow`, `errc::no_memory`: too many &lt;things\\>

**Cost:** O(count).

## `make`, `most` {#make-2}

```cpp
template <class T>
holder<T> make(const make_options& options);
inline constexpr int most = 3;
```

The same, of none.
'''

ROOM_PAGE = '''# Room small

`import shardmesh.small;` (`import shardmesh;` shows the names that most programs need)

a room for this test. Not here: others.

| group | names |
|---|---|
ROW
'''
ROW = "| [small](small.md) | " + ", ".join([
    "[`trouble`](../small/small.md#trouble)",
    "[`make_options`](../small/small.md#make_options)",
    "[`source`](../small/small.md#source)",
    "[`extent`](../small/small.md#extent)",
    "[`holder`](../small/small.md#holder)",
    "[`shown`](../small/small.md#shown)",
    "[`make`](../small/small.md#make)",
    "[`most`](../small/small.md#make-2)"]) + " |"

NAMES = {
    "types": {name: f"small/small.md#{name}" for name in ("trouble", "make_options", "source", "extent", "holder", "shown")},
    "functions": {"make": "small/small.md#make", "most": "small/small.md#make-2"}}


UMBRELLA = """// SPDX
export module shardmesh;

import shardmesh.small;

export namespace shardmesh {
using shardmesh::extent;
using shardmesh::holder;
using shardmesh::make;
}  // namespace shardmesh
"""


def equal(found, wanted, what):
    found, wanted = ([line.rstrip() for line in text.strip().splitlines()] for text in (found, wanted))
    for i, (ours, theirs) in enumerate(zip(found + [None], wanted + [None])):
        assert ours == theirs, f"{what}, line {i + 1}: {ours!r}, expected {theirs!r}"


def test_the_walk(folder):
    read = interfaces.read(folder / "modules/small/small.cppm", "small")
    assert (read.room, read.head) == ("small", ["small: a room for this test. Not here: others."])
    found = [(d.kind, d.name, d.text, d.comment, d.body, d.group, d.exported) for d in read.declarations]
    for ours, wanted in zip(found, DECLARATIONS):
        whole = [None if w is None else o for o, w in zip(ours, wanted)]
        assert whole == list(wanted), f"{whole}, expected {wanted}"
    assert len(found) == len(DECLARATIONS)


def test_the_pages(folder):
    every = pages.Pages(reference.Reference(folder))
    made = every.all()
    assert sorted(made) == ["index.md", "small/index.md", "small/small.md"], sorted(made)
    equal(made["small/small.md"], GROUP_PAGE, "small/small.md")
    equal(made["small/index.md"], ROOM_PAGE.replace("ROW", ROW), "small/index.md")
    assert every.names() == NAMES, every.names()


def test_no_name_is_missing():
    """Finds all names that exported_names.py finds (the compiler checks those), and no others except those that it
    leaves out."""
    # Names exported one by one, or members' bodies, specialisations, and operators, which it does not list.
    more = {"path_key", "key_text", "state_node", "buildable_state_node", "node_ref", "node_pointer", "node_adapter", "root_node", "tree_root"}
    for file in sorted((ROOT / "modules").glob("*/*.cppm")):
        text = exported_names.without_comments(file.read_text())
        read = interfaces.read(file, file.name)
        if not exported_names.MODULE.search(text) or read.room == "std":
            assert read is None or read.room == "std", file
            continue
        wanted = {(inner, name) for inner, name, _ in exported_names.names_of(text)}
        wanted = {(inner, name) for inner, name in wanted if name not in ("int", "unsigned")}  # enum : int
        found = {(d.namespace.removeprefix("shardmesh").removeprefix("::"), d.name) for d in read.declarations
                 if d.exported and d.namespace.startswith("shardmesh") and "detail" not in d.namespace and not d.name.startswith("operator")}
        assert wanted <= found, f"{file}: {wanted - found}"
        extra = {name for _, name in found - wanted} - more
        assert not extra, f"{file}: {extra}"


def test_the_names_of_the_table_exist(every):
    """docs/from-pytorch.md: the names between backticks in the middle column are exported, or members of exported
    types."""
    known = {d.name for d in every.everything}
    for declarations in every.types.values():
        known |= {m.name for d in declarations for m in (entries.members_of(d) if d.kind == "type" else [])}
        known |= {name for d in declarations if d.kind == "enum" for name, _ in entries.enumerators(d)}
    found = 0
    for row in re.findall(r"^\| .* \| (.*) \| .*\|$", (ROOT / "docs/from-pytorch.md").read_text(), re.M):
        for code in re.findall(r"`([^`]*)`", row):
            if code.startswith("shardmesh "):
                continue  # the command line
            for name in re.findall(r"\w+", code.partition("(")[0]):
                assert name in known, f"docs/from-pytorch.md: there is no {name}"
                found += 1
    assert found > 60, found


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "modules/small").mkdir(parents=True)
        (folder / "modules/small/small.cppm").write_text(SMALL)
        (folder / "modules/shardmesh.cppm").write_text(UMBRELLA)
        test_the_walk(folder)
        test_the_pages(folder)
    test_no_name_is_missing()
    every = reference.Reference(ROOT)
    test_the_names_of_the_table_exist(every)
    print(f"{len(every.types)} types of users, {len(every.everything)} declarations")


main()
