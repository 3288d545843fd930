# SPDX-License-Identifier: Apache-2.0
"""The built site in a headless Chromium, opened from the disk: the search finds tasks, pages fit a narrow screen, code is
not broken, and the picture follows the colour scheme. Without a browser or a site it returns 77 (skipped).

    browser_test.py ROOT SITE CHROMIUM PICTURES
"""
import os
import random
import sys
import time
from pathlib import Path

ROOT, SITE, CHROMIUM, PICTURES = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
sys.path.insert(0, str(ROOT / "tests/pages"))
from browser import Browser

if not CHROMIUM:
    print("skipped: chromium was not found")
    sys.exit(77)
if not (SITE / "index.html").is_file():
    print("skipped: the site is not built (mkdocs-material is missing)")
    sys.exit(77)

# What a reader types, and the page that comes first.
QUERIES = {"keep last checkpoints": "recipes/save-keep-resume.html", "fuse qkv": "recipes/rename-cast-fuse.html",
           "async save": "recipes/save-keep-resume.html", "untrusted": "recipes/untrusted-file.html",
           "retention": "recipes/save-keep-resume.html", "background load": "checkpoints.html"}
NARROW = ("index.html", "architecture.html", "options.html", "commands.html", "saving.html", "formats.html", "from-pytorch.html", "performance.html",
          "concepts.html", "recipes/read-a-tensor.html", "reference/index.html", "reference/checkpoint/selection.html",
          "reference/core/index.html")
RESULTS = "[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)"
TYPE = """(() => { const input = document.querySelector('.md-search__input'); input.focus(); input.value = %r;
  input.dispatchEvent(new Event('input', {bubbles: true})); input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })()"""
# Words of code that a line break cuts: kept words of more than one line. Text wider than its column, beyond the frame
# around code (4 pixels).
BROKEN = """[...document.querySelectorAll('.md-content .whole')].filter((one) => one.getClientRects().length > 1)
  .map((one) => one.textContent)"""
WIDER = """[...document.querySelectorAll('.md-content p, .md-content li, .md-content h1, .md-content h2')]
  .filter((one) => !one.closest('table, pre, .tabbed-set') && one.scrollWidth > one.clientWidth + 6).map((one) => one.textContent.slice(0, 60))"""


def check_search(browser):
    browser.open(SITE / "index.html")
    for query, wanted in QUERIES.items():
        browser.value(TYPE % query)
        end, found = time.monotonic() + 30, []
        while time.monotonic() < end and not (found and wanted in found[0]):
            time.sleep(0.2)
            found = browser.value(RESULTS)
        assert found and wanted in found[0], f"{query!r} finds {found[:3]}"
    assert not browser.complaints, browser.complaints


def narrow_pages():
    """All in long runs, else the front page and five others, which SHARDMESH_SEED or chance draws."""
    if os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long":
        return NARROW
    seed = os.environ.get("SHARDMESH_SEED") or str(random.randrange(1 << 32))
    print(f"SHARDMESH_SEED={seed}", flush=True)
    return [NARROW[0], *random.Random(seed).sample(NARROW[1:], 5)]


def check_narrow(browser):
    for name in narrow_pages():
        browser.open(SITE / name, width=420)
        browser.picture(PICTURES / f"{name.replace('/', '-')}.png")
        assert browser.value("document.documentElement.scrollWidth") <= 420, f"{name} scrolls sideways"
        for what, script in (("breaks", BROKEN), ("does not wrap", WIDER)):
            found = browser.value(script)
            assert not found, f"{name} {what} {found[:5]}"
        elsewhere = [one for one in browser.requests if not one.startswith(("file:", "data:", "about:"))]
        assert not elsewhere, f"{name} requests {elsewhere}"


def check_schemes(browser):
    for scheme in "light", "dark":
        browser.open(SITE / "index.html", scheme=scheme)
        browser.value("localStorage.clear()")  # a choice of the run before
        browser.open(SITE / "index.html", scheme=scheme)
        shown = browser.value("[...document.querySelectorAll('.md-content img')].filter((one) => one.offsetWidth > 0).map((one) => one.src)")
        assert len(shown) == 1 and f"idea-{scheme}.svg" in shown[0], f"{scheme}: {shown}"


browser = Browser(CHROMIUM)
try:
    check_search(browser)
    check_narrow(browser)
    check_schemes(browser)
finally:
    browser.close()
print(f"{len(QUERIES)} searches, and pages of {len(NARROW)}")
