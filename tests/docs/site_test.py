# SPDX-License-Identifier: Apache-2.0
"""The documentation site builds without warnings or broken links; and the build reports them if there are any.

    site_test.py ROOT FOLDER
"""
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

if not importlib.util.find_spec("mkdocs") or not importlib.util.find_spec("material"):
    print("skipped: mkdocs-material is not installed (./dev setup docs)")
    sys.exit(0)

ROOT, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
# The names that readers look up first have a page, and code links to it.
TYPES = "result error errc dtype host_tensor tensor_entry rank_plan communicator device_mesh placement sharded_tensor".split()
FETCHED = re.compile(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"|<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="(http[^"]*)"')


def build(root, folder):
    done = subprocess.run([sys.executable, "-B", root / "docs/site/build.py", root, folder], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def reference_page(page):
    return (FOLDER / "site/reference" / page.replace(".md", ".html")).read_text()


def check_site():
    status, said = build(ROOT, FOLDER)
    assert status == 0, said
    places = json.loads((FOLDER / "names.json").read_text())["types"]
    for name in TYPES:
        page, _, anchor = places[name].partition("#")
        assert f'<h2 id="{anchor}"><code>{name}</code>' in reference_page(page), name
    plan = places["rank_plan"].partition("#")[0]
    traffic = places["peer_traffic"].replace(".md", ".html")
    assert f'<a href="../../reference/{traffic}">peer_traffic</a>' in reference_page(plan), "code does not lead to its types"
    assert '<a href="../../reference/core/error.html#errc-overflow"><code>errc::overflow</code></a>' in \
        reference_page("core/host_tensor.md")
    assert 'id="errc-overflow"' in reference_page("core/error.md")
    table = (FOLDER / "site/from-pytorch.html").read_text()
    assert '<a href="reference/checkpoint/convert.html#convert"><code>convert</code></a>' in table
    assert '<a href="reference/layout/mesh.html#device_mesh"><code>device_mesh</code></a>' in table
    assert '"reference/core/dtype.html#dtype"' not in (FOLDER / "site/python.html").read_text(), "Python's words are not ours"
    front = (FOLDER / "site/index.html").read_text()
    for mode in "light", "dark":
        assert f'<img src="images/idea-{mode}.svg#only-{mode}"' in front, f"no {mode} picture on the front page"
        assert (FOLDER / f"site/images/idea-{mode}.svg").is_file(), mode
    # Pages work from the disk: the search has its index as a script, and no page fetches anything from elsewhere.
    assert (FOLDER / "site/search/search_index.js").read_text().startswith("var __index = ")
    assert '<script src="assets/iframe-worker.js"></script>' in front
    for page in (FOLDER / "site").rglob("*.html"):
        fetched = FETCHED.findall(page.read_text())
        assert not fetched, f"{page} fetches {fetched}"
    map_of_rooms = (FOLDER / "site/architecture.html").read_text()
    assert '<div class="flowchart"><svg ' in map_of_rooms and ">collective_checkpoint</text>" in map_of_rooms
    recipe = (FOLDER / "site/recipes/read-a-tensor.html").read_text()
    for title in "C++", "Python", "C", "Command line":
        assert f">{title}</label>" in recipe, f"no tab {title}"
    order = re.findall(r'href="([^"]*)" class="md-nav__link', front)
    assert order[:2] == ["index.html", "recipes/index.html"], f"the tree begins with {order[:2]}"
    print(said.strip())


def check_that_mistakes_are_seen():
    """A small project with one page, on which a link, an anchor, and a room's file are wrong."""
    root = FOLDER / "wrong"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(ROOT / "docs/site", root / "docs/site")
    shutil.copytree(ROOT / "docs/images", root / "docs/images")  # the logo is on every page
    (root / "docs/index.md").write_text("# Home\n\n[a](nowhere.md) [b](#no-such-heading) [c](../LICENSE) [d](../NONE)\n\nTwo:\n- one\n- two\n")
    (root / "LICENSE").write_text("Anything.\n")
    (root / "docs/left.md").write_text("# Left out of the nav\n")
    config = root / "docs/site/mkdocs.yml"
    config.write_text(re.sub(r"^nav:\n.*", "nav:\n  - index.md\n  - Lost: lost.md\n  - reference/index.md\n", config.read_text(), flags=re.M | re.S))
    status, said = build(root, root / "out")
    wanted = ["A reference to 'lost.md' is included in the 'nav' configuration, which is not found in the documentation files.",
              "Doc file 'index.md' contains a link 'nowhere.md', but the target is not found among documentation files.",
              "Doc file 'index.md' contains an unrecognized relative link '../NONE', it was left as is.",
              "Doc file 'index.md' contains a link '#no-such-heading', but there is no such anchor on this page.",
              "index.html: nowhere.md leads nowhere",
              "index.html: #no-such-heading: no such place in that page",
              "index.html: ../NONE leads nowhere",
              "index.html: a list without an empty line before it: '- one'",
              "index.html: a list without an empty line before it: '- two'"]
    lines = [line for line in said.splitlines() if not line.endswith("lost.md leads nowhere")]  # in every page's nav
    assert '<a href="left.html"' in (root / "out/site/index.html").read_text(), "a page outside of the nav is lost"
    assert status == 1 and [line for line in lines if line] == wanted, said


check_site()
check_that_mistakes_are_seen()
