# SPDX-License-Identifier: Apache-2.0
"""Checks the generator of the C interface's reference, on a small header and on every header of the C interface.

    c_reference_test.py ROOT
"""
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "docs/site"))
import c_reference

SMALL = '''/* SPDX-License-Identifier: Apache-2.0 */
/* What the header is. */
#ifndef SHARDMESH_C_API_SMALL_H
#define SHARDMESH_C_API_SMALL_H

#include <shardmesh/c_api/export.h>

SHARDMESH_C_BEGIN

/* The most. */
#define SHARDMESH_MOST 16

typedef struct shardmesh_handle shardmesh_handle;

/* Kinds; of two
 * lines. */
typedef int32_t shardmesh_kind;
enum {
  SHARDMESH_FIRST = 0, /* the first; not the last */
  SHARDMESH_LAST = 1
};

typedef struct shardmesh_options {
  size_t struct_size;
  /* Called; often. */
  int32_t (*progress)(void* user, int64_t bytes);
} shardmesh_options;

/* Makes `one`. */
SHARDMESH_C_EXPORT int32_t shardmesh_make(const shardmesh_options* options,
                                          shardmesh_handle** one);
SHARDMESH_C_EXPORT void shardmesh_free(shardmesh_handle* one);
/* Counts. */
SHARDMESH_C_EXPORT size_t shardmesh_count(void);

SHARDMESH_C_END

#endif
'''
ENTRIES = [
    (["The most."], ["SHARDMESH_MOST"]),
    ([], ["shardmesh_handle"]),
    (["Kinds; of two", "lines."], ["shardmesh_kind"]),
    ([], ["shardmesh_options"]),
    (["Makes `one`."], ["shardmesh_make", "shardmesh_free"]),
    (["Counts."], ["shardmesh_count"]),
]


def check_small():
    found = c_reference.entries(SMALL)
    assert [(comment, c_reference.names_of(declarations)) for comment, declarations in found] == ENTRIES, found
    assert c_reference.head_of(SMALL) == ["What the header is."]
    assert "SHARDMESH_FIRST = 0, /* the first; not the last */" in found[2][1][1], found[2]
    assert c_reference.shown(found[4][1][0]) == "int32_t shardmesh_make(const shardmesh_options* options, shardmesh_handle** one);"


def check_ours():
    pages = c_reference.pages(ROOT)
    page, wrapper = pages["c_api/c.md"], pages["c_api/cpp17.md"]
    listed = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^### (.*?) \{#", page, re.M))))
    exported = set((ROOT / "tests/c_api/exports.txt").read_text().split())
    assert exported <= listed, f"not on the page: {sorted(exported - listed)}"
    for header in sorted((ROOT / c_reference.FOLDER).glob("*.h")):
        for comment, declarations in c_reference.entries(header.read_text()):
            names = c_reference.names_of(declarations)
            assert set(names) <= listed, f"{header.name}: {names} are not on the page"
            assert comment or not exported & set(names), f"{header.name}: {names} have no comment"
    anchors = re.findall(r"\{#([\w-]+)\}|<a id=\"([\w-]+)\">", page)
    assert len(set(anchors)) == len(anchors), "two places of the page have one anchor"
    types = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^### (.*?) \{#", wrapper, re.M))))
    assert {"checkpoint", "error", "save", "reshard", "load_options", "layout", "plan"} <= types, sorted(types)
    assert "static checkpoint open(const std::string& path, const open_options& options);" in wrapper
    assert not types & c_reference.PLUMBING and "detail::" not in wrapper
    print(f"{len(exported)} functions, {len(listed)} names of C, {len(types)} of C++17")


check_small()
check_ours()
