# SPDX-License-Identifier: Apache-2.0
"""Draws the logo of the site: a tensor whose rows become columns, in the colours of the picture of the idea.

    logo.py FOLDER            writes logo.svg into FOLDER
    logo.py FOLDER --check    exits with 1 if the file differs from what the script draws now
"""
import sys
from pathlib import Path

COLOURS = ("hsl(0,60%,75%)", "hsl(138,60%,75%)", "hsl(275,60%,75%)", "hsl(53,60%,75%)")  # of ranks 0 to 3
SIDE, GAP, BAR = 64, 4, 13  # the tensor, the gap between its boxes, and the thickness of a box


def drawn():
    """Four rows on the left, which bend into four columns at the diagonal."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}" role="img">',
           "<title>shardmesh</title>"]
    for i, colour in enumerate(COLOURS):
        at = i * (BAR + GAP)
        # The row at height `at` runs to the right until it meets its column, which runs down.
        far = SIDE - at
        out.append(f'<path fill="{colour}" d="M0 {at}h{far}v{SIDE - at}h-{BAR}v-{SIDE - at - BAR}h-{far - BAR}z"/>'
                   if far > BAR else f'<path fill="{colour}" d="M0 {at}h{far}v{SIDE - at}h-{far}z"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main(folder, check):
    file, now = folder / "logo.svg", drawn()
    if not check:
        file.write_text(now)
    elif not file.is_file() or file.read_text() != now:
        print(f"{file} is not what the script draws: run docs/site/logo.py {folder}")
        return 1
    print(f"{file} is {'up to date' if check else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--check" in sys.argv[2:]))
