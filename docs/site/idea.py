# SPDX-License-Identifier: Apache-2.0
"""Draws the picture of the front pages: two layouts of one tensor, and the plan between them.

    idea.py SHARDMESH FOLDER            writes idea-light.svg and idea-dark.svg into FOLDER
    idea.py SHARDMESH FOLDER --check    exits with 1 if the files differ from what the program draws now

SHARDMESH is the command line. It draws three pictures (`layout --svg`, `plan --svg`). This script takes their
rectangles, colours, and texts, and arranges them side by side with larger letters, which a narrow screen can show.
"""
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from xml.sax.saxutils import escape

from drawing import write_or_check

SHAPE, SOURCE, TARGET = "8,8", ("4", "S(0)"), ("3", "S(1)")
SIDE, TOP, STEP = 212, 102, 300  # a panel's side, its upper edge, and the distance from one panel to the next
LEFT = 20
WIDTH, HEIGHT = 2 * LEFT + 2 * STEP + SIDE, TOP + SIDE + 76
NAME = "{http://www.w3.org/2000/svg}"
TEXTS = (("Boxes and owners", "rows on 4 ranks", ("of a mesh, an FSDP", "model, a checkpoint")),
         ("One planner", "row sends to column", None),  # the amounts of the plan
         ("Boxes and owners", "columns on 3 ranks", ("in memory", "or in files")))
ABOUT = ("An 8 by 8 tensor in rows on four ranks becomes columns on three ranks. "
         "The planner lists the bytes that each rank sends to each other rank.")


def drawn(program, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "drawn.svg"
        subprocess.run([program, *arguments, "--svg", file], check=True, stdout=subprocess.DEVNULL)
        return ET.parse(file).getroot()


def boxes(picture):
    """(x, y, width, height, element) of the coloured rectangles, in units of the picture's frame."""
    frame = picture.find(f"{NAME}rect[@class='frame']")
    left, top, width, height = (float(frame.get(key)) for key in ("x", "y", "width", "height"))
    for rect in picture.iter(f"{NAME}rect"):
        if rect.find(f"{NAME}title") is not None:
            x, y, w, h = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
            yield (x - left) / width, (y - top) / height, w / width, h / height, rect


def text(x, y, content, css, anchor="middle"):
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def panel(at, picture, label, css):
    """The rectangles of a picture in a panel, each with `label` of its description."""
    for x, y, w, h, rect in boxes(picture):
        about = rect.findtext(f"{NAME}title")
        x, y, w, h = at + x * SIDE, TOP + y * SIDE, w * SIDE, h * SIDE
        yield (f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{rect.get("fill")}" '
               f'stroke="{rect.get("stroke") or "none"}"><title>{escape(about)}</title></rect>')
        yield text(x + w / 2, y + h / 2 + 8, label(about), css)
    yield f'<rect class="frame" x="{at}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>'


def owner(about):
    return about.rpartition(" on ")[2]  # "[0:2, 0:8) on 0"


def amount(about):
    return re.search(r": (\d+) bytes$", about).group(1)  # "0 to 1: 24 bytes"


def ranks(at, colours):
    """The numbers of the senders left of the plan, and of the receivers above it, in their colours."""
    step = SIDE / len(colours)
    for i, (rank, colour) in enumerate(sorted(colours.items())):
        middle = (i + 0.5) * step
        for x, y in (at - 18, TOP + middle), (at + middle, TOP - 16):
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="13" fill="{colour}"/>' + text(x, y + 6, rank, "rank on")


def arrow(before):
    """An arrow behind panel `before`. The first leaves room for the plan's senders."""
    x, y = LEFT + before * STEP + SIDE + (27 if before else 12), TOP + SIDE / 2
    return f'<path class="arrow" d="M{x} {y}h40m-11 -9l11 9l-11 9"/>'


def composed(pictures, style):
    source, plan, target = pictures
    places = [LEFT + i * STEP for i in range(3)]
    colours = {owner(rect.findtext(f"{NAME}title")): rect.get("fill") for *_, rect in boxes(source)}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'font-family="sans-serif" font-size="22" role="img">',
           f"<title>Boxes, owners, and one planner</title><desc>{ABOUT}</desc>", f"<style>{style}</style>",
           '<rect class="page" width="100%" height="100%" rx="8"/>']
    title = plan.findtext(f"{NAME}text[@class='name']")
    moved, least = re.fullmatch(r"(\d+ bytes) move, at least (\d+ bytes)", title).groups()
    amounts = (f"{moved} move:", "the lower bound" if moved == least else f"at least {least}")
    for at, (title, below, last) in zip(places, TEXTS):
        out.append(text(at + SIDE / 2, 30, title, "head"))
        out.append(text(at + SIDE / 2, 58, below, "edge"))
        for i, line in enumerate(last or amounts):
            out.append(text(at + SIDE / 2, TOP + SIDE + 32 + 27 * i, line, "name"))
    out += [*panel(places[0], source, owner, "owner on"), *panel(places[1], plan, amount, "light"),
            *panel(places[2], target, owner, "owner on"), *ranks(places[1], colours), arrow(0), arrow(1), "</svg>"]
    return "\n".join(out) + "\n"


def styles(picture):
    """The program's own rules for a light and for a dark page, and ours for the larger letters."""
    light, _, dark = picture.findtext(f"{NAME}style").partition("@media(prefers-color-scheme:dark)")
    ours = (".head{font-weight:bold}.edge{font-size:22px}.owner{font-size:28px}.rank{font-size:18px}"
            ".arrow{fill:none;stroke:%s;stroke-width:3}")
    return {"light": light + ours % "#444", "dark": light + dark[1:-1] + ours % "#aaa"}


def main(program, folder, check):
    pictures = (drawn(program, "layout", "--shape", SHAPE, "--mesh", SOURCE[0], "--place", SOURCE[1]),
                drawn(program, "plan", "--shape", SHAPE, "--from-mesh", SOURCE[0], "--from", SOURCE[1],
                      "--to-mesh", TARGET[0], "--to", TARGET[1]),
                drawn(program, "layout", "--shape", SHAPE, "--mesh", TARGET[0], "--place", TARGET[1]))
    files = {f"idea-{name}.svg": composed(pictures, style) for name, style in styles(pictures[0]).items()}
    return write_or_check(files, folder, check, f"docs/site/idea.py {program} {folder}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), "--check" in sys.argv[3:]))
