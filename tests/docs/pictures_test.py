# SPDX-License-Identifier: Apache-2.0
"""Checks that the guides' pictures, the charts, and the logo are as their scripts draw them, and that the scripts notice
a picture that is out of date. A chart has a bar for each ratio, on its side of the line at 1.

    pictures_test.py ROOT
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(sys.argv[1])
SCRIPTS = ("diagrams.py", "charts.py", "logo.py")


def run(script, *arguments):
    done = subprocess.run([sys.executable, "-B", ROOT / "docs/site" / script, *arguments], capture_output=True,
                          text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_pictures_are_up_to_date():
    for script in SCRIPTS:
        status, said = run(script, ROOT / "docs/images", "--check")
        assert status == 0, said


def test_a_changed_picture_is_noticed():
    drawn = set()
    for script in SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            assert run(script, folder)[0] == 0
            assert run(script, folder, "--check")[0] == 0
            for picture in sorted(Path(folder).iterdir()):
                text = picture.read_text()
                picture.write_text(text + " ")
                status, said = run(script, folder, "--check")
                assert status == 1 and picture.name in said, said
                picture.write_text(text)
                drawn.add(picture.name)
    return drawn


def bars_of(picture):
    """(first x, last x, what it says) of each bar, and the x of the line at 1."""
    svg = ET.parse(picture).getroot()
    name = "{http://www.w3.org/2000/svg}"
    bars = [(float(bar.get("x")), float(bar.get("x")) + float(bar.get("width")), bar.find(name + "title").text)
            for bar in svg.iter(name + "rect") if bar.find(name + "title") is not None]
    one = next(line for line in svg.iter(name + "path") if line.get("stroke-dasharray") == "none")
    return bars, float(re.match(r"M([\d.]+) ", one.get("d")).group(1))


def test_a_chart_has_a_bar_for_each_ratio():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "baseline.json")
        rows = {"load": {"ratios": {"load: peer": [0.25, 0.3], "load: plain": [2.0, 1.9]}}, "counted": {"ratios": {}}}
        file.write_text(json.dumps({"rows": rows}))
        status, said = run("charts.py", folder, "--ratios", file)
        assert status == 0, said
        bars, one = bars_of(Path(folder, "ratios-light.svg"))
        # Our time is a quarter of the peer's, and twice that of plain reads.
        assert [about for _, _, about in bars] == ["load: peer, median: 4 ×", "load: plain, median: 0.5 ×"], bars
        (begin, end, _), (slow_begin, slow_end, _) = bars
        assert abs(begin - one) < 0.2 and abs(slow_end - one) < 0.2, (bars, one)
        assert abs((end - begin) - 2 * (slow_end - slow_begin)) < 0.5, "the scale is not logarithmic"
        file.write_text(json.dumps({"rows": {"counted": {"ratios": {}}}}))
        status, said = run("charts.py", folder, "--ratios", file)
        assert status == 1 and "no row has a ratio" in said, said


def test_a_cell_without_a_ratio_is_refused():
    """A copy of the scripts beside a page with one cell changed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "docs/site", Path(folder, "site"))
        page = (ROOT / "docs/performance.md").read_text()
        Path(folder, "performance.md").write_text(page.replace("| 8.6 × longer |", "| much longer |"))
        done = subprocess.run([sys.executable, "-B", Path(folder, "site/charts.py"), folder], capture_output=True, text=True)
        assert done.returncode == 1 and "'much longer'" in done.stderr, done.stdout + done.stderr


def test_every_picture_is_drawn_and_on_a_page(drawn):
    """The picture of the idea has a test of its own."""
    there = {picture.name for picture in (ROOT / "docs/images").glob("*.svg")}
    assert there == drawn | {"idea-light.svg", "idea-dark.svg"}, there ^ drawn
    pages = "".join(page.read_text() for page in [*(ROOT / "docs").glob("*.md"), ROOT / "docs/site/mkdocs.yml"])
    for name in there:
        ET.parse(ROOT / "docs/images" / name)
        assert f"images/{name}" in pages, f"{name} is on no page"


test_the_pictures_are_up_to_date()
drawn = test_a_changed_picture_is_noticed()
test_every_picture_is_drawn_and_on_a_page(drawn)
test_a_chart_has_a_bar_for_each_ratio()
test_a_cell_without_a_ratio_is_refused()
print(f"{len(drawn)} pictures")
