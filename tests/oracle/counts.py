# SPDX-License-Identifier: Apache-2.0
"""Fails if a chunk, tensor, or message costs more system calls or allocations than benchmarks/baseline.json records.
A count depends on the machine, but the slope between two sizes does not: the extra cost of 3,000 tensors over 1,000,
divided by 2,000. One more call per tensor fails the test. `./dev bench --baseline slopes` writes the slopes. Needs
no package."""
import json
import sys
from pathlib import Path

from common import SKIPPED, Oracle

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import counts  # noqa: E402

ROOM = 0.5  # one more call per tensor is twice this; a growing vector is a hundredth


def arguments(parser):
    parser.add_argument("--tracer", type=Path, required=True, help="count_calls")
    parser.add_argument("--shim", type=Path, required=True, help="resource_preload")
    parser.add_argument("--ranks", type=Path, help="rank_copy")
    parser.add_argument("--bench", type=Path, help="shardmesh_bench")
    parser.add_argument("--moves", type=Path, help="shardmesh_rank_bench")
    parser.add_argument("--baseline", type=Path, default=ROOT / "benchmarks" / "baseline.json")


def check_the_counter(oracle, counter):
    """Commands that are known to make two calls per byte, and one allocation per line."""
    def calls(count):
        return counter.count(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={count}"])["calls"]
    found = (calls(3000) - calls(1000)) / 2000
    oracle.check(abs(found - 2) < ROOM / 4, "dd", f"makes {found} calls for each block of a byte, not 2: is the tracer right?")


def check_slopes(oracle, found, known):
    for name, costs in found.items():
        allowed = known.get(name)
        if not oracle.check(allowed is not None, name, "is not in the baseline: ./dev bench --baseline slopes"):
            continue
        for what, cost in costs.items():
            print(f"{name}: {cost:.2f} {what} each (baseline {allowed[what]:.2f})", flush=True)
            oracle.check(cost <= allowed[what] + ROOM, name, f"{cost:.2f} {what} for each one more, {allowed[what]:.2f} before. "
                         "Where that is meant: ./dev bench --baseline slopes")
            if cost < allowed[what] - ROOM:
                print(f"{name}: fewer than the baseline says; write it anew: ./dev bench --baseline slopes")


def measured(slopes_of, chosen, known):
    """Name -> costs. Threads that get out of step read some items twice. So a row above its baseline is measured
    twice more, and its lowest costs count."""
    found = slopes_of(chosen)
    for name, costs in found.items():
        allowed = known.get(name, costs)
        for _ in range(2):
            if all(cost <= allowed[what] + ROOM for what, cost in costs.items()):
                break
            again = slopes_of(lambda other: other == name)[name]
            costs.update({what: min(cost, again[what]) for what, cost in costs.items()})
    return found


def main():
    oracle = Oracle(__doc__, arguments)
    counter = counts.Counter(oracle.args.tracer.resolve(), oracle.args.shim.resolve())
    try:
        check_the_counter(oracle, counter)
    except counts.CannotCount as why:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
    work = counts.tool_work(oracle.tool) | counts.program_work(*(path and path.resolve() for path in (oracle.args.bench, oracle.args.ranks)))
    known = json.loads(oracle.args.baseline.read_text())["slopes"]
    chosen = lambda name: oracle.args.only in name  # noqa: E731
    messages = counts.message_work(oracle.args.moves and oracle.args.moves.resolve())
    for slopes_of in (lambda of: counts.slopes(counter, work, oracle.tool, of),
                      lambda of: counts.message_slopes(counter, messages, of)):
        check_slopes(oracle, measured(slopes_of, chosen, known), known)
    oracle.finish()


if __name__ == "__main__":
    main()
