# SPDX-License-Identifier: Apache-2.0
"""Checks that each recipe shows whole programs that a test runs.

    recipes.py ROOT            exits with 1 if a page of docs/recipes differs from its programs
    recipes.py ROOT --write    writes the programs into the pages

- Each block of a recipe begins with the name of a file, and has the whole of that file, without the licence line and
  the line that names an interpreter.
- Every program of examples/recipes is on a page, and every recipe has a program.
- Tabs (`<!-- tabs -->`, a heading for each tab, `<!-- end of tabs -->`) hold a heading and one program each.
"""
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(cpp|c|python|bash)\n((//|#) (\S+)\n.*?)^```$", re.M | re.S)
FENCE = re.compile(r"^```(\w*)\n.*?^```$", re.M | re.S)
TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.M | re.S)
TITLES = {"cpp": "C++", "python": "Python", "c": "C", "bash": "Command line"}


def shown(root, name):
    """The program, as a page shows it."""
    lines = (root / name).read_text().splitlines(keepends=True)
    while lines and (lines[0].startswith("#!") or "SPDX-License-Identifier" in lines[0]):
        lines.pop(0)
    return "".join(lines)


def written(root, page):
    """The page with the present text of its programs."""
    return BLOCK.sub(lambda found: f"```{found[1]}\n{found[3]} {found[4]}\n{shown(root, found[4])}```", page.read_text())


def check_tabs(text):
    """Yields the defects of a page's tabs."""
    if text.count("<!-- tabs -->") != len(TABS.findall(text)) or text.count("<!-- end of tabs -->") != len(TABS.findall(text)):
        yield "tabs without a beginning or an end"
    for inside in TABS.findall(text):
        titles = re.findall(r"^### (.*)$", FENCE.sub("", inside), re.M)
        languages = FENCE.findall(inside)
        if not titles or titles != [TITLES.get(language) for language in languages]:
            yield f"tabs {titles} with blocks of {languages}"


def check_page(root, page, used):
    text = page.read_text()
    blocks = BLOCK.findall(text)
    if not blocks or len(blocks) != len(FENCE.findall(text)):
        yield "a block that begins with no file's name, or no program at all"
    for *_, name in blocks:
        used.add(name)
        if not (root / name).is_file():
            yield f"there is no {name}"
            return
    if written(root, page) != text:
        yield "does not show its programs as they are: run tests/static/recipes.py . --write"
    yield from check_tabs(text)


def main(root, write):
    wrong, used = [], set()
    pages = [page for page in sorted((root / "docs/recipes").glob("*.md")) if page.name != "README.md"]
    for page in pages:
        if write:
            page.write_text(written(root, page))
        wrong += [f"{page.relative_to(root)}: {what}" for what in check_page(root, page, used)]
    programs = [file for file in sorted((root / "examples/recipes").iterdir()) if file.suffix in (".cpp", ".c", ".py", ".sh")]
    wrong += [f"{file.relative_to(root)} is on no page of docs/recipes" for file in programs
              if file.relative_to(root).as_posix() not in used]
    print("\n".join(wrong) or f"{len(pages)} recipes show {len(used)} programs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), "--write" in sys.argv[2:]))
