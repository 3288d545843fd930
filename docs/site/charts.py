# SPDX-License-Identifier: Apache-2.0
"""Draws charts of times relative to shardmesh's: a bar for each side of a comparison, and a line at 1.

    charts.py FOLDER                  writes NAME-light.svg and NAME-dark.svg of each table of TABLES into FOLDER
    charts.py FOLDER --check          exits with 1 if the files differ from what the script draws now
    charts.py FOLDER --ratios FILE    writes ratios-light.svg and ratios-dark.svg of the ratios in FILE, which has the
                                      form of benchmarks/baseline.json

The tables are those of docs/performance.md, so a chart never differs from its table. The scale is logarithmic: a side
that takes half the time and one that takes twice the time have bars of equal length.
"""
import json
import math
import re
import sys
from pathlib import Path

from drawing import RANKS, WIDTH, files_of, rect, text, write_or_check

PAGE = Path(__file__).resolve().parents[1] / "performance.md"
# The first heading of a table, and the name of its chart.
TABLES = {"full load into preallocated memory": "figures-load",
          "S(0) → S(1), the loads of all 8 destination ranks": "figures-columns"}
COLOURS = (RANKS[1], RANKS[2], RANKS[3])  # of the columns of a table
LEFT, RIGHT, TOP, BAR = 24, 110, 118, 24
LONGEST = 76  # letters in a line
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number_of(cell, where):
    """The ratio that a cell states: "8.6 × longer", "1.5 ×", "1"."""
    found = re.fullmatch(r"([\d,]*\.?\d+)(?: ×)?(?: longer)?", cell)
    if not found or float(found.group(1).replace(",", "")) <= 0:
        sys.exit(f"{PAGE.name}: the cell {cell!r} of {where!r} is no ratio, such as '8.6 ×'")
    return float(found.group(1).replace(",", ""))


def table(page, title):
    """(names of the columns with ratios, {side: its ratios}) of the table whose first heading is `title`. A column of
    ratios follows the column of figures that it belongs to. Our own side, whose ratios are 1, is left out."""
    lines = page.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("|") and cells_of(line)[0] == title), None)
    if start is None:
        sys.exit(f"{PAGE.name}: there is no table with the heading {title!r}")
    head = cells_of(lines[start])
    columns = [i for i, name in enumerate(head) if name == "ratio"]
    sides = {}
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        cells = cells_of(line)
        ratios = [number_of(cells[i], title) for i in columns]
        if any(ratio != 1 for ratio in ratios):
            sides[cells[0].replace("`", "")] = ratios
    return [head[i - 1] for i in columns], sides


def shortened(name):
    """A name that fits into the picture, with both of its ends."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST // 2]}…{name[-LONGEST // 2 + 1:]}"


def chart(title, about, columns, sides):
    """A picture as files_of takes it. `sides`: {name: one ratio per column}"""
    ratios = [ratio for of in sides.values() for ratio in of]
    low, high = math.log(min(0.9, *ratios) / 1.1), math.log(max(1.1, *ratios) * 1.1)

    def x(ratio):
        return LEFT + (math.log(ratio) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    step = 34 + (BAR + 4) * len(columns) + 10
    bottom = TOP + step * len(sides)
    out = [text(LEFT, 36, title, "head", "start")]
    for i, name in enumerate(columns if len(columns) > 1 else ()):
        out.append(rect(LEFT + 180 * i, 52, 20, 20, "cell", COLOURS[i]))
        out.append(text(LEFT + 180 * i + 28, 69, name, "small", "start"))
    out.append(text(WIDTH - LEFT, 69, "time relative to shardmesh's", "small edge", "end"))
    last = -math.inf
    for tick in TICKS:
        if low <= math.log(tick) <= high and (x(tick) - last > 60 or tick == 1):
            # Beside the bars only, so that no line crosses the name of a side.
            lines = "".join(f"M{x(tick):.1f} {TOP + step * row + 30}v{step - 42}" for row in range(len(sides)))
            dashes = "none" if tick == 1 else "2 6"
            out.append(f'<path class="line" d="{lines}" stroke-dasharray="{dashes}"/>')
            out.append(text(round(x(tick), 1), TOP - 22, f"{tick:g} ×", "small edge"))
            last = x(tick)
    for row, (name, of) in enumerate(sides.items()):
        y = TOP + step * row
        out.append(text(LEFT, y + 24, shortened(name), "small", "start"))
        for i, ratio in enumerate(of):
            begin, end = sorted((x(1), x(ratio)))
            top = y + 34 + (BAR + 4) * i
            out.append(rect(round(begin, 1), top, round(end - begin, 1), BAR, "cell", COLOURS[i], f"{name}, {columns[i]}: {ratio:g} ×"))
            out.append(text(round(end, 1) + 8, top + 19, f"{ratio:g} ×", "small", "start"))
    return title, about, bottom + 16, out


def of_tables():
    page = PAGE.read_text()
    pictures = {}
    for title, name in TABLES.items():
        columns, sides = table(page, title)
        about = "; ".join(f"{side}: " + ", ".join(f"{ratio:g} times with {column}" for ratio, column in zip(of, columns))
                          for side, of in sides.items())
        pictures[name] = chart(f"{title[0].upper()}{title[1:]}", f"Time relative to shardmesh's. {about}.", columns, sides)
    return pictures


def of_baseline(file):
    """The ratios of medians. The file has our time over the peer's; the chart shows the peer's over ours."""
    sides = {label: [float(f"{1 / median:.3g}")] for row in json.loads(file.read_text())["rows"].values()
             for label, (median, _) in row.get("ratios", {}).items()}
    if not sides:
        sys.exit(f"{file}: no row has a ratio; run ./dev bench --baseline on a quiet machine")
    about = "; ".join(f"{side}: {ratio:g} times" for side, (ratio,) in sides.items())
    return {"ratios": chart("Ratios of the baseline", f"Time relative to shardmesh's. {about}.", ["median"], sides)}


if __name__ == "__main__":
    folder, rest = sys.argv[1], sys.argv[2:]
    drawn = of_baseline(Path(rest[1])) if rest[:1] == ["--ratios"] else of_tables()
    sys.exit(write_or_check(files_of(drawn), folder, "--check" in rest, f"docs/site/charts.py {folder}"))
