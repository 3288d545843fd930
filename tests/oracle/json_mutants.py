# SPDX-License-Identifier: Apache-2.0
"""Shared by json_documents.py and json_formats.py: changes bytes of files, and checks the one document of a call with
--json. Needs no package."""
import json

TIME_LIMIT_S = 60
LARGE = (b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80")  # 0, -1, and the limits of 64 bits


def strict(text):
    """The document, or its error."""
    def once(pairs):
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise ValueError(f"a key stands twice: {sorted(names)}")
        return dict(pairs)

    def no_constant(name):
        raise ValueError(f"{name} is no JSON")

    if not text.endswith("\n") or text.count("\n") != 1:
        raise ValueError("not one line")
    return json.loads(text, object_pairs_hook=once, parse_constant=no_constant)


def document_of(oracle, name, *arguments):
    """The document that the call prints, or None. The exit status follows the command table, an error is also on
    stderr, and the document says that the call failed. A signal and a hang fail the check."""
    status, text, err = oracle.run(*arguments, "--json", timeout=TIME_LIMIT_S)
    oracle.check(status in (0, 1, 2, 3), name, f"exits {status}: {err[-300:]}")
    try:
        document = strict(text)
    except ValueError as cause:
        oracle.check(False, name, f"{cause}: {text[:300]!r}")
        return None
    if not oracle.check(isinstance(document, dict), name, f"the document is no object: {text[:100]!r}"):
        return None
    compares = "diff" in arguments[:2]  # exits with 1 for a difference, too
    if status > 1 or (status == 1 and not compares):
        oracle.check(document.get("ok") is False, name, f"exits {status} and says ok: {text[:200]}")
        oracle.check(err.strip(), name, f"exits {status}, and stderr is empty")
    return document


def bytes_turned(dice, data, edge=2048):
    """The bytes with one to four changes. Half of them lie near an end, where descriptions are."""
    made = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(made))
        if dice.random() < 0.5:
            at = min(at, dice.randrange(edge)) if dice.random() < 0.5 else max(at, len(made) - 1 - dice.randrange(edge))
        kind = dice.randrange(6)
        if kind == 0:
            made[at] = dice.randrange(256)
        elif kind == 1:
            del made[at:at + dice.randint(1, 40)]
        elif kind == 2:
            made[at:at] = made[at:at + dice.randint(1, 40)]
        elif kind == 3:
            made[at] ^= 1 << dice.randrange(8)
        elif kind == 4:
            made[at:at + 8] = dice.choice(LARGE)
        elif dice.random() < 0.3:
            del made[at:]
        if not made:
            made = bytearray(b"x")
    return bytes(made)
