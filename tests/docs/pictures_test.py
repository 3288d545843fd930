# SPDX-License-Identifier: Apache-2.0
"""Checks that the guides' pictures and the logo are as their scripts draw them, and that the scripts notice a picture
that is out of date.

    pictures_test.py ROOT
"""
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(sys.argv[1])
SCRIPTS = ("diagrams.py", "logo.py")


def run(script, *arguments):
    done = subprocess.run([sys.executable, "-B", ROOT / "docs/site" / script, *arguments], capture_output=True,
                          text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_pictures_are_up_to_date():
    for script in SCRIPTS:
        status, said = run(script, ROOT / "docs/images", "--check")
        assert status == 0, said


def test_a_changed_picture_is_noticed():
    with tempfile.TemporaryDirectory() as folder:
        for script in SCRIPTS:
            assert run(script, folder)[0] == 0
            assert run(script, folder, "--check")[0] == 0
        pictures = sorted(Path(folder).iterdir())
        for picture in pictures:
            text = picture.read_text()
            picture.write_text(text + " ")
            script = "logo.py" if picture.name == "logo.svg" else "diagrams.py"
            status, said = run(script, folder, "--check")
            assert status == 1 and picture.name in said, said
            picture.write_text(text)
        return {picture.name for picture in pictures}


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
print(f"{len(drawn)} pictures")
