# SPDX-License-Identifier: Apache-2.0
"""Checks that recipes show their programs, and the parts of the site's build that find lists, make tabs, and keep names
of code whole.

    markup_test.py ROOT
"""
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "docs/site"), str(ROOT / "tests/static")]
import recipes
from flowchart import drawn, levels, placed, width_of
from inline_code import kept
from lists import unrendered
from markdown_text import prose
from tabs import tabbed


def test_lists_in_prose_are_found():
    assert unrendered("<p>Two things:\n- one\n* two\n12. three</p>") == ["- one", "* two", "12. three"]
    assert unrendered("<ul><li>a <code>b</code>\n  - below\n</li></ul>") == ["- below"]
    assert unrendered("<p>first</p><ul><li>one</li><li><p>two\nmore</p></li></ul>") == []
    assert unrendered("<pre><code>a\n- b\n</code></pre><p>x <code>\n- y</code>\n-z 3.5\n2.0</p>") == []


def test_lists_of_comments_render():
    assert prose(["Tries:", "- a", "  more", "- b", "End."]) == "Tries:\n\n- a\nmore\n\n- b\nEnd.\n"
    assert prose(["Tries:", "1. a", "2. b"]) == "Tries:\n\n1. a\n2. b\n"


def test_headings_become_tabs():
    page = ("Before\n\n<!-- tabs -->\n\n### C++\n\n```cpp\n### no heading\n\nint x;\n```\n\n"
            "### Python\n\n```python\nx\n```\n\n<!-- end of tabs -->\n\nAfter\n")
    assert tabbed(page) == ('Before\n\n=== "C++"\n\n    ```cpp\n    ### no heading\n\n    int x;\n    ```\n\n'
                            '=== "Python"\n\n    ```python\n    x\n    ```\n\nAfter\n')
    assert tabbed("### C++\n") == "### C++\n"


def test_names_of_code_stay_whole():
    assert kept("<p><code>--skip-objects</code> <code>save</code></p>") == \
        '<p><code><span class="whole">--skip-objects</span></code> <code>save</code></p>'
    long = "shardmesh::rank_save_options::staging_pool"
    assert kept(f"<code>{long}</code>") == \
        "<code>shardmesh::<wbr>rank_<wbr>save_<wbr>options::<wbr>staging_<wbr>pool</code>"
    assert kept("<pre><code>a --b-c</code></pre>") == "<pre><code>a --b-c</code></pre>"
    assert kept("<code>a&lt;b&gt; --c</code>") == '<code>a&lt;b&gt; <span class="whole">--c</span></code>'


def test_flowcharts_become_pictures():
    edges = [("c", "b"), ("b", "a"), ("c", "a"), ("d", "a")]
    assert levels(edges) == {"a": 0, "b": 1, "c": 2, "d": 1}
    places, width, rows = placed(edges)
    assert rows == 3 and all(0 < x < width for x, _ in places.values()), places
    page = "Above\n\n```mermaid\nflowchart BT\n  b --> a\n```\nBelow\n"
    made = drawn(page)
    assert made.startswith('Above\n\n<div class="flowchart"><svg ') and made.endswith("</svg></div>\nBelow\n"), made
    assert ">a</text>" in made and "<title>b imports a</title>" in made, made
    # The map of rooms: no two boxes of a row overlap.
    text = (ROOT / "docs/architecture.md").read_text()
    rooms = [tuple(line.split(" --> ")) for line in text.split("```mermaid")[1].split("```")[0].split("\n") if "-->" in line]
    places, _, _ = placed([(a.strip(), b.strip()) for a, b in rooms])
    for a, (x, row) in places.items():
        for b, (y, other) in places.items():
            assert a == b or row != other or abs(x - y) >= (width_of(a) + width_of(b)) / 2, (a, b)


def test_recipes():
    assert recipes.main(ROOT, False) == 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "docs/recipes").mkdir(parents=True)
        (root / "examples/recipes").mkdir(parents=True)
        (root / "examples/recipes/a.py").write_text("# SPDX-License-Identifier: X\nprint(1)\n")
        page = root / "docs/recipes/a.md"
        page.write_text("# A\n\n```python\n# examples/recipes/a.py\nprint(2)\n```\n")
        assert recipes.main(root, False) == 1, "a page that differs from its program"
        assert recipes.main(root, True) == 0 and "print(1)" in page.read_text()
        (root / "examples/recipes/b.sh").write_text("true\n")
        assert recipes.main(root, False) == 1, "a program on no page"
        page.write_text(page.read_text() + "\n<!-- tabs -->\n\n### C\n\n"
                        "```bash\n# examples/recipes/b.sh\ntrue\n```\n\n<!-- end of tabs -->\n")
        assert recipes.main(root, False) == 1, "a tab whose heading is that of another language"
        page.write_text(page.read_text().replace("### C\n", "### Command line\n"))
        assert recipes.main(root, False) == 0


def test_the_check_runs_as_a_script():
    done = subprocess.run([sys.executable, "-B", ROOT / "tests/static/recipes.py", ROOT], capture_output=True,
                          text=True)
    assert done.returncode == 0 and "programs" in done.stdout, done.stdout + done.stderr


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
