# SPDX-License-Identifier: Apache-2.0
"""Checks the documentation where a script can.

    documentation.py ROOT

- A block ```cpp or ```c is code that is compiled and run. Its first line is `// FILE`, an example or a test. Its lines
  occur in that file, consecutively, with any indentation. `// ...` stands for omitted lines. (A block after
  `<!-- compiled -->` needs no file: doc_code.py makes a unit of it.)
- Our code is only in such blocks: an indented block has no line with `import shardmesh` or `shardmesh::`, except
  CMake's.
- Python code is on pages that a test runs (tests/python/page.py, tests/docs/ten_minutes.py), or quotes such a page or a
  program of examples/recipes: the block's first line is `# FILE`, its lines occur there as those of C++ do, and `# ...`
  stands for omitted lines.
- A block ```toml quotes a mapping: the block's first line is `# FILE`, an example, and its lines occur there as those of
  C++ do.
- A heading and the first line of a block follow an empty line, or begin the page (the site shows them as text otherwise),
  and every block ends.
- A link to a file of the project points to an existing file, and its #anchor to a heading there.
- The page of a room (docs/rooms/ROOM.md) lists every interface file of it in its table, and only existing files; the
  tests that it names exist. Every format's room has such a page. docs/rooms/README.md leads to each of these pages,
  and names every room.
- docs/errors.md has a row for every error code, because the command line and Python end their lines in a code.
"""
import re
import sys
from pathlib import Path

COMPILED = ("examples/", "tests/static/", "tests/unit/", "tests/distributed/", "tests/package/", "test_package/")
RUN = ("docs/python.md", "docs/ten-minutes.md")
FORMATS = """storage pickle checkpoint_core torch_file dcp safetensors deepspeed torch_checkpointing torchsnapshot gguf npz nemo checkpoint
             collective_checkpoint""".split()
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```$", re.M | re.S)
TOML = re.compile(r"^ *```toml\n(.*?)^ *```$", re.M | re.S)
BLOCK = re.compile(r"(^<!-- compiled -->\n)?^ *```(?:cpp|c)\n(.*?)^ *```$", re.M | re.S)
FENCE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def lines(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def position(wanted, source, start):
    """The index after the first place where these lines follow one another."""
    for at in range(start, len(source) - len(wanted) + 1):
        if source[at:at + len(wanted)] == wanted:
            return at + len(wanted)
    return None


def not_quoted(block, source, omitted):
    """The first line of the first part of a block that does not follow in the source; None if all parts do."""
    at, part = 0, []
    for line in [*block, omitted]:
        if line != omitted:
            part.append(line)
            continue
        at = position(part, source, at) if part else at
        if at is None:
            return part[0]
        part = []
    return None


def check_blocks(root, page, say):
    text = page.read_text()
    for match in BLOCK.finditer(text):
        if match.group(1):
            continue
        where = f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
        block = lines(match.group(2))
        name = block[0].removeprefix("// ") if block else ""
        if not name.startswith(COMPILED) or not (root / name).is_file():
            say(f"{where}: the block's first line names no file that is compiled: {name!r}")
            continue
        wrong = not_quoted(block[1:], lines((root / name).read_text()), "// ...")
        if wrong is not None:
            say(f"{where}: not (or not in this order) in {name}: {wrong!r} and what follows")


def check_indented(root, page, say):
    text = FENCE.sub(lambda fence: "\n" * fence.group().count("\n"), page.read_text())
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" {4,}(import shardmesh|(?!target_link_libraries|find_package).*\bshardmesh::)", line):
            say(f"{page.relative_to(root)}:{number}: code of ours that no test compiles: {line.strip()!r}")


def check_run(root, page, say):
    name, text = page.relative_to(root).as_posix(), page.read_text()
    for found in PYTHON.finditer(text) if name not in RUN else ():
        where = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
        block = lines(found.group(1))
        quoted = block[0].removeprefix("# ") if block else ""
        if quoted.startswith("examples/recipes/") and (root / quoted).is_file():  # tests/python/recipes.py runs it
            source = lines((root / quoted).read_text())
        elif quoted in RUN:
            source = lines("".join(PYTHON.findall((root / quoted).read_text())))
        else:
            say(f"{where}: a block of Python that no test runs")
            continue
        wrong = not_quoted(block[1:], source, "# ...")
        if wrong is not None:
            say(f"{where}: not (or not in this order) in {quoted}: {wrong!r} and what follows")


def check_toml(root, page, say):
    text = page.read_text()
    for found in TOML.finditer(text):
        where = f"{page.relative_to(root)}:{text.count(chr(10), 0, found.start()) + 1}"
        block = lines(found.group(1))
        quoted = block[0].removeprefix("# ") if block else ""
        if not quoted.startswith("examples/") or not (root / quoted).is_file():
            say(f"{where}: the block's first line names no example: {quoted!r}")
            continue
        wrong = not_quoted(block[1:], lines((root / quoted).read_text()), "# ...")
        if wrong is not None:
            say(f"{where}: not (or not in this order) in {quoted}: {wrong!r} and what follows")


def check_fences(root, page, say):
    name, above, opened = page.relative_to(root).as_posix(), "", None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        if opened is None and above.strip() and not above.startswith("<!--") and (is_fence or re.match(r"#+ ", line)):
            say(f"{name}:{number}: no empty line is above {line.strip()!r}")
        if is_fence:
            opened = number if opened is None else None
        above = line
    if opened is not None:
        say(f"{name}:{opened}: the block does not end")


def anchors(page):
    """The anchors that code forges make from headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(root, page, say):
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            say(f"{page.relative_to(root)}: the link {link} leads nowhere")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            say(f"{page.relative_to(root)}: {link}: no such heading")


def check_room(root, room, say):
    page = root / "docs/rooms" / f"{room}.md"
    if not page.is_file():
        say(f"docs/rooms/{room}.md is missing")
        return
    text, folder = page.read_text(), root / "modules" / room
    files = {file.stem for file in folder.rglob("*.cpp*")}
    named = set()
    for row in re.findall(r"^\| (`.*?) \|", text, re.M):
        named |= set(re.findall(r"`(\w+)`", row))
    for name in sorted(named - files):
        say(f"docs/rooms/{room}.md names {name}, which is no file of modules/{room}")
    for name in sorted({f.stem for f in folder.rglob("*.cppm") if f.read_text().count("\nexport module ")} - named - {room}):
        say(f"docs/rooms/{room}.md does not name {name}")
    for path in re.findall(r"`(tests/[^`]*)`", text):
        head, braces, rest = path.partition("{")
        inner, _, tail = rest.partition("}")
        for choice in inner.split(",") if braces else [""]:
            if not (root / (head + choice + tail)).exists():
                say(f"docs/rooms/{room}.md: there is no {head + choice + tail}")


def check_rooms(root, pages, say):
    index = (root / "docs/rooms/README.md").read_text()
    linked, named = set(re.findall(r"\]\((\w+)\.md\)", index)), set(re.findall(r"`(\w+)`", index))
    for name in sorted(pages - linked):
        say(f"docs/rooms/README.md does not lead to {name}.md")
    rooms = {folder.name for folder in (root / "modules").iterdir() if (folder / f"{folder.name}.cppm").is_file()}
    for name in sorted(rooms - {"std"} - linked - named):
        say(f"docs/rooms/README.md does not name the room {name}")


def check_codes(root, say):
    source = (root / "modules/core/error.cppm").read_text()
    codes = re.findall(r"^  (\w+)(?:,|$)", re.sub(r" *//.*", "", source.partition("enum class errc {")[2].partition("};")[0]), re.M)
    table = (root / "docs/errors.md").read_text().partition("## What to do")[2]
    explained = {code for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for code in re.findall(r"`(\w+)`", row)}
    if len(codes) < 20:
        say("modules/core/error.cppm: the error codes were not found")
    for code in sorted(explained ^ {code for code in codes if code != "ok"}):
        say(f"docs/errors.md and modules/core/error.cppm do not agree on the code {code}")


def main(root):
    wrong = []
    pages = [*root.glob("*.md"), *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        check_blocks(root, page, wrong.append)
        check_indented(root, page, wrong.append)
        check_run(root, page, wrong.append)
        check_toml(root, page, wrong.append)
        check_fences(root, page, wrong.append)
        check_links(root, page, wrong.append)
    described = {page.stem for page in (root / "docs/rooms").glob("*.md")} - {"README"}
    for room in sorted({*FORMATS, *described}):
        check_room(root, room, wrong.append)
    check_rooms(root, described, wrong.append)
    check_codes(root, wrong.append)
    print("\n".join(wrong) or f"{len(pages)} pages are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
