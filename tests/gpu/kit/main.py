# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of the GPU kit, and writes and prints the report. run.sh starts it.

    main.py KIT WORK
"""
import os
import shutil
import sys
import time
from pathlib import Path

import machine
import parts
import report
import running

REPORT_SECONDS = 2  # kept for the report


def refusal_in(outcome):
    """NCCL's refusal of several ranks on a GPU, which later parts need not find again."""
    return outcome.text if outcome.verdict == "skipped" and outcome.text.startswith("NCCL refuses") else ""


def run_all(kit, seconds, say):
    """The outcomes of all parts, which end within this many seconds."""
    end = time.monotonic() + seconds - REPORT_SECONDS
    outcomes, refusal = [], ""

    def one(part):
        nonlocal refusal
        if refusal and part.shares_gpu and not part.reason:
            part.reason = refusal
        outcome = running.run(part, kit.work / "logs", min(part.seconds, end - time.monotonic()))
        if kit.is_double and outcome.verdict == "skipped" and not part.reason:
            outcome.verdict = "FAILED"  # nothing is missing there
        refusal = refusal or (refusal_in(outcome) if part.shares_gpu else "")
        outcomes.append(outcome)
        first = outcome.text.splitlines()[0] if outcome.text else ""
        say(f"== {outcome.name}: {outcome.verdict} ({outcome.seconds} s){': ' + first if first else ''}")

    one(parts.compile_part(kit))
    if kit.missing():
        say(f"== {kit.missing()}; what can be compiled was compiled, and nothing runs on a GPU")
    for part in parts.later_parts(kit):
        one(part)
    return outcomes


def main(root, work):
    root, work = Path(root).resolve(), Path(work).resolve()
    is_double = os.environ.get("GPU_KIT_DOUBLE") == "1"
    is_short = is_double and os.environ.get("GPU_KIT_SHORT") == "1"
    for name in ("logs", "tmp"):
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir(parents=True)
    kit = parts.Kit(root, work, machine.describe(), is_double, is_short)
    usual = parts.DOUBLE_SECONDS[is_short] if is_double else parts.GPU_SECONDS
    began = time.monotonic()
    outcomes = run_all(kit, float(os.environ.get("GPU_KIT_SECONDS", usual)), lambda text: print(text, flush=True))
    notes = [(root / "kit" / "version.txt").read_text().strip()]
    if is_double:
        notes.append("with the double of the GPU libraries: nothing ran on a GPU, and no time means anything")
    print(report.write(work, kit.machine, outcomes, time.monotonic() - began, notes))
    return report.status(outcomes, is_double or not kit.missing())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
