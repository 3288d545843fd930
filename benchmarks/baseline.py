# SPDX-License-Identifier: Apache-2.0
"""baseline.json: the benchmarks' results when it was written, and checks for regressions against it. A row has the
ratio of our time to each peer's (of medians, and of the fastest runs). For each of our commands it has the system
calls, allocations, and peak memory of one run. `slopes` has the cost of one more tensor or message (counts.py)."""
import json
from pathlib import Path

import counts

FILE = Path(__file__).resolve().parent / "baseline.json"
WORSE_RATIO, WORSE_COUNT, WORSE_SLOPE = 1.15, 1.02, 0.5
LEAST = {"calls": 20, "allocations": 20, "peak_bytes": 1 << 20}  # smaller differences are chance
SOUND = 1.25  # the median over the fastest run: above it, the machine did other work


def read():
    return json.loads(FILE.read_text()) if FILE.exists() else {"slopes": {}, "rows": {}}


def count_commands(bench, found):
    """Adds the counts of each row's commands, and forgets the commands."""
    counter = counts.Counter.of_build(bench.build)
    commands_of, bench.commands = bench.commands, {}
    for row, commands in commands_of.items():
        for label, line in commands.items():
            try:
                found.setdefault(row, {}).setdefault("counts", {})[label] = counter.least(line)
            except counts.CannotCount as why:
                print(f"# nothing is counted: {why}")
                return
            except RuntimeError as why:
                print(f"# {row}: {label} is not counted: {why}")
                bench.failed.append(row)


def write(bench):
    """Writes what was found since the last call. Ratios of unsound runs stay unchanged and are named."""
    found, slopes, bench.found, bench.slopes = bench.found, bench.slopes, {}, {}
    count_commands(bench, found)
    known = read()
    known["threads"] = bench.threads
    for row, new in found.items():
        old = known["rows"].setdefault(row, {})
        old["counts"] = new.get("counts", old.get("counts", {}))
        ratios = old.setdefault("ratios", {})
        for label, (median, least, spread) in new.get("ratios", {}).items():
            if spread > SOUND:
                print(f"not written: {row}: {label}: medians are {spread:.2f} times the least runs: the machine was not quiet")
            else:
                ratios[label] = [round(median, 3), round(least, 3)]
    known["slopes"] |= slopes
    for part in ("slopes", "rows"):
        known[part] = dict(sorted(known[part].items()))
    whole = FILE.with_suffix(".new")
    whole.write_text(json.dumps(known, indent=1) + "\n")
    whole.replace(FILE)
    print(f"written to {FILE.name}: {', '.join(found) or 'no row'}, {len(slopes)} slopes", flush=True)


def worse_ratio(now, before):
    """Requires both medians and fastest runs to be worse: one of them alone is mostly due to the machine."""
    return now[0] > before[0] * WORSE_RATIO and now[1] > before[1] * WORSE_RATIO


def worse_count(what, now, before):
    return now > before * WORSE_COUNT and now - before > LEAST[what]


def check(bench, found, slopes):
    """Prints regressions against the baseline and the number of comparisons. Returns the number of regressions."""
    known, lines, compared, absent, unsound = read(), [], 0, [], []
    same = known.get("threads") == bench.threads
    if not same:
        print(f"# counts are not compared: they were made with --threads {known.get('threads')}")
    for row, new in found.items():
        old = known["rows"].get(row, {})
        for label, (median, least, spread) in new.get("ratios", {}).items():
            before = old.get("ratios", {}).get(label)
            if before is None:
                absent.append(f"{row}: {label}")
            elif spread > SOUND and worse_ratio((median, least), before):
                unsound.append(f"{row}: {label}")
            else:
                compared += 1
                if worse_ratio((median, least), before):
                    lines.append((row, f"time / {label}", f"{before[0]:.3f}", f"{median:.3f}"))
        for label, of in new.get("counts", {}).items() if same else ():
            before = old.get("counts", {}).get(label)
            if before is None:
                absent.append(f"{row}: counts of {label}")
                continue
            for what, now in of.items():
                compared += 1
                if worse_count(what, now, before[what]):
                    lines.append((row, f"{what} of {label}", f"{before[what]:,}", f"{now:,}"))
    for name, of in slopes.items():
        before = known["slopes"].get(name)
        if before is None:
            absent.append(f"slopes: {name}")
            continue
        for what, now in of.items():
            compared += 1
            if now > before[what] + WORSE_SLOPE:
                lines.append(("slopes", f"{what} for each one more: {name}", f"{before[what]:.2f}", f"{now:.2f}"))
    print(f"\n{compared} figures compared with {FILE.name}, {len(lines)} worse "
          f"(ratios by more than 15 %, counts by more than 2 %, slopes by more than {WORSE_SLOPE})")
    for row, what, before, now in lines:
        print(f"  WORSE {row}: {what}: {before} -> {now}")
    for names, why in ((unsound, "seem worse, but the machine was not quiet"), (absent, "are not in the baseline")):
        if names:
            print(f"  {len(names)} {why}: {'; '.join(names)}")
    return len(lines)
