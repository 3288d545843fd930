# SPDX-License-Identifier: Apache-2.0
"""Draws a flowchart of mermaid as a picture in the page.

The theme would load mermaid's program from the network when a reader opens the page. A map of rooms needs only names
and lines: rows of boxes, each above everything that it leads to.
"""
import re

BLOCK = re.compile(r"^```mermaid\nflowchart BT\n(.*?)^```$", re.M | re.S)
LETTER, HEIGHT, GAP, ROW = 8.6, 30, 26, 72  # of 14 pixels; of a box; between boxes; from row to row


def levels(edges):
    """{name: its row}; 0 is the lowest."""
    below = {}
    for upper, lower in edges:
        below.setdefault(upper, []).append(lower)
        below.setdefault(lower, [])
    found = {}

    def level(name):
        if name not in found:
            found[name] = 1 + max((level(one) for one in below[name]), default=-1)
        return found[name]

    for name in below:
        level(name)
    return found


def width_of(name):
    return LETTER * len(name) + 18


def placed(edges):
    """{name: (middle, row)}: each row is ordered by the middles of the boxes that its boxes are joined to."""
    rows = {}
    for name, row in levels(edges).items():
        rows.setdefault(row, []).append(name)
    widest = max(sum(width_of(name) + GAP for name in names) for names in rows.values())
    middle = {}

    def spread(names):
        """Places a row in its order, over the whole width."""
        free = (widest - sum(width_of(name) for name in names)) / len(names)
        at = 0
        for name in names:
            middle[name] = at + free / 2 + width_of(name) / 2
            at += free + width_of(name)

    for row in sorted(rows):
        spread(rows[row])
    for turn in range(8):
        for row in sorted(rows, reverse=turn % 2 == 1):
            def wish(name):
                joined = [b if a == name else a for a, b in edges if name in (a, b)]
                return sum(middle[one] for one in joined) / len(joined)

            rows[row].sort(key=wish)
            spread(rows[row])
    return {name: (middle[name], row) for row, names in rows.items() for name in names}, widest, len(rows)


def picture(edges):
    places, width, rows = placed(edges)
    height = ROW * (rows - 1) + HEIGHT + 4

    def top(row):
        return height - 2 - HEIGHT - ROW * row

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
           f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="14" role="img">',
           "<title>The rooms, each above those that it imports</title>",
           '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
           '<path class="tip" d="M0 0l8 4l-8 4z"/></marker>']
    for upper, lower in edges:
        (x, a), (to_x, b) = places[upper], places[lower]
        y, to_y = top(a) + HEIGHT, top(b)
        out.append(f'<path class="edge" d="M{x:.1f} {y}C{x:.1f} {y + 24} {to_x:.1f} {to_y - 24} {to_x:.1f} {to_y}" '
                   f'marker-end="url(#tip)">'
                   f"<title>{upper} imports {lower}</title></path>")
    for name, (x, row) in places.items():
        wide = width_of(name)
        out.append(f'<rect class="node" x="{x - wide / 2:.1f}" y="{top(row)}" width="{wide:.1f}" height="{HEIGHT}" rx="4"/>'
                   f'<text x="{x:.1f}" y="{top(row) + 20}" text-anchor="middle">{name}</text>')
    return "".join([*out, "</svg>"])


def drawn(text):
    """The page with its flowcharts as pictures."""

    def one(found):
        edges = [tuple(line.split(" --> ")) for line in found[1].split("\n") if " --> " in line]
        edges = [(a.strip(), b.strip()) for a, b in edges]
        return f'<div class="flowchart">{picture(edges)}</div>'

    return BLOCK.sub(one, text)
