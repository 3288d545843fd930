# SPDX-License-Identifier: Apache-2.0
"""Runs one part of the kit within its time limit, and reads its verdict and its rows from what it printed."""
import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

SKIPPED = 77  # also what programs of tests/gpu exit with
CATCH_ALL_SKIPPED = 4
REFUSALS = re.compile(r"Duplicate GPU|ncclInvalidUsage|invalid usage", re.I)


@dataclass
class Part:
    name: str
    section: str
    command: list
    seconds: float
    environment: dict = field(default_factory=dict)
    reason: str = ""  # why it is not run
    shares_gpu: bool = False  # ranks share a GPU, which NCCL may refuse
    is_catch: bool = False


@dataclass
class Outcome:
    name: str
    section: str
    verdict: str  # passed, FAILED, skipped, cut off
    seconds: float = 0.0
    text: str = ""  # the reason or the end of the output
    counts: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)  # names of failed tests
    skips: list = field(default_factory=list)  # skipped tests with reasons
    rows: list = field(default_factory=list)  # lines of JSON
    table: list = field(default_factory=list)  # lines of a table in Markdown


def end(process):
    """Ends the part's own process group: the program and its ranks."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def read_junit(path, outcome):
    try:
        suites = list(xml.parse(path).getroot().iter("testsuite"))
    except (OSError, xml.ParseError):
        return
    cases = [case for suite in suites for case in suite.iter("testcase")]
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    outcome.problems = sorted(set(failed))
    for case in skipped:
        note = case.find("skipped")
        outcome.skips.append(f"{case.get('name')}: {(note.get('message') or note.text or 'no reason').strip()}")
    outcome.counts = {"cases": len(cases), "failed": len(outcome.problems), "skipped": len(skipped)}


def read_output(text, outcome):
    for line in text.splitlines():
        if line.startswith("|"):
            outcome.table.append(line)
        elif line.startswith("{"):
            try:
                outcome.rows.append(json.loads(line))
            except ValueError:
                pass


def reason_in(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("skipped:")]
    return (named or lines or ["no reason given"])[-1].removeprefix("skipped:").strip()


def tail(text, lines=25):
    return "\n".join(text.splitlines()[-lines:])


def run(part, folder, seconds):
    """The outcome of a part that has this many seconds. Its output is in FOLDER."""
    outcome = Outcome(part.name, part.section, "passed")
    if part.reason:
        outcome.verdict, outcome.text = "skipped", part.reason
        return outcome
    if seconds < 1:
        outcome.verdict, outcome.text = "cut off", "not started: the time for all parts had passed"
        return outcome
    stem = Path(folder, re.sub(r"[^a-z0-9]+", "-", part.name.lower()).strip("-"))
    log, junit = stem.with_suffix(".log"), stem.with_suffix(".xml")
    command = [str(word) for word in part.command]
    if part.is_catch:
        command += ["--reporter", "console", "--reporter", f"junit::out={junit}"]
    began = time.monotonic()
    with open(log, "wb") as output:
        try:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       env={**os.environ, **part.environment}, start_new_session=True)
        except OSError as error:
            outcome.verdict, outcome.text = "FAILED", str(error)
            return outcome
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            outcome.verdict = "cut off"
        finally:
            end(process)
    outcome.seconds = round(time.monotonic() - began, 1)
    text = log.read_bytes().decode(errors="replace")
    if part.is_catch:
        read_junit(junit, outcome)
    else:
        read_output(text, outcome)
    if outcome.verdict == "cut off":
        outcome.text = f"after {seconds:.0f} s, its limit; the last lines:\n{tail(text, 8)}"
    elif process.returncode == SKIPPED or (part.is_catch and process.returncode == CATCH_ALL_SKIPPED):
        outcome.verdict, outcome.text = "skipped", reason_in(text)
    elif process.returncode != 0 and part.shares_gpu and REFUSALS.search(text):
        refusal = next(line for line in text.splitlines() if REFUSALS.search(line)).strip()
        outcome.verdict, outcome.text = "skipped", f"NCCL refuses several ranks on one GPU: {refusal}"
    elif process.returncode != 0:
        outcome.verdict, outcome.text = "FAILED", f"status {process.returncode}\n{tail(text)}"
    return outcome
