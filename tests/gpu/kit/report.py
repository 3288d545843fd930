# SPDX-License-Identifier: Apache-2.0
"""Writes the outcomes of the kit's parts as report.json and report.md."""
import json
from dataclasses import asdict

SECTIONS = ("Setup", "Suites", "Kernels", "Bandwidth", "Loading", "Redistribution")


def columns_of(rows):
    return list(dict.fromkeys(key for row in rows for key in row))


def table_of(rows):
    """Rows of JSON as a table; a row that was not measured has its reason in a column of its own."""
    names = columns_of(rows)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        lines.append("| " + " | ".join(str(row.get(name, "–")).replace("|", "\\|") for name in names) + " |")
    return lines


def lines_of(outcome):
    yield f"### {outcome.name}: {outcome.verdict}"
    yield ""
    counts = ", ".join(f"{count} {what}" for what, count in outcome.counts.items())
    yield f"{outcome.seconds} s" + (f"; {counts}" if counts else "")
    yield ""
    for problem in outcome.problems:
        yield f"- FAILED: {problem}"
    for skip in outcome.skips:
        yield f"- skipped: {skip}"
    if outcome.problems or outcome.skips:
        yield ""
    if outcome.text:
        yield from ("```", *outcome.text.splitlines(), "```", "")
    if outcome.table:
        yield from (*outcome.table, "")
    if outcome.rows:
        yield from (*table_of(outcome.rows), "")


def summary(outcomes):
    """One line for each part, for the terminal and the head of the report."""
    yield "| part | verdict | s | note |"
    yield "|---|---|---|---|"
    for outcome in outcomes:
        if outcome.problems:
            note = f"{len(outcome.problems)} failed: {outcome.problems[0]}"
        elif outcome.counts.get("skipped"):
            note = f"{outcome.counts['cases']} cases, {outcome.counts['skipped']} skipped"
        else:
            note = outcome.text.splitlines()[0] if outcome.text else ""
        yield f"| {outcome.name} | {outcome.verdict} | {outcome.seconds} | {note.replace('|', '/')} |"


def status(outcomes, has_gpu):
    """What run.sh exits with."""
    verdicts = {outcome.verdict for outcome in outcomes}
    if "FAILED" in verdicts:
        return 1
    if "cut off" in verdicts:
        return 2
    return 0 if has_gpu else 77


def write(folder, machine, outcomes, seconds, notes):
    """Writes both files into the folder, and returns the text of report.md."""
    document = {"notes": notes, "machine": machine, "seconds": seconds, "parts": [asdict(o) for o in outcomes]}
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n")
    lines = ["# GPU kit", "", *(f"- {note}" for note in notes), f"- {seconds:.0f} s in all",
             *(f"- {name}: {value}" for name, value in machine.items()), "", *summary(outcomes), ""]
    cut = [outcome.name for outcome in outcomes if outcome.verdict == "cut off"]
    if cut:
        lines += [f"Cut off by their time limits: {', '.join(cut)}.", ""]
    for section in SECTIONS:
        lines += [f"## {section}", ""]
        for outcome in outcomes:
            if outcome.section == section:
                lines += lines_of(outcome)
    text = "\n".join(lines).rstrip() + "\n"
    (folder / "report.md").write_text(text)
    return text
