# SPDX-License-Identifier: Apache-2.0
"""Mappings between naming conventions: their names and texts, and the arguments of `open` that choose one."""
from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from . import _arguments, _native
from ._error import failure

#: Configurations nest two or three objects. Deeper ones are not followed, as in the C++ half.
_MOST_LEVELS = 8
#: Sizes in a params.json of Meta or Mistral, and Hugging Face's names of them, as in the C++ half.
_COMMON_NAMES = {"dim": "hidden_size", "n_heads": "num_attention_heads", "n_kv_heads": "num_key_value_heads",
                 "n_layers": "num_hidden_layers", "hidden_dim": "intermediate_size"}


def mappings() -> list[str]:
    """Returns the names of the mappings between naming conventions, such as "hf.llama:megatron.gpt".

    Each works in both directions. `map="meta.llama:megatron.gpt"` of `open` applies several mappings, if they lead from
    one convention to the other.
    """
    return _native.mappings()


def mapping_text(name: str) -> str:
    """Returns the TOML text of a mapping: to read it, or to change a copy and pass its path as `map`.

    name: one of `mappings()`; the conventions may be in the other order.
    """
    return _native.mapping_text(_arguments.text("name", name))


def mapping_options(map: Any, config: Any, sizes: Any, map_inverse: Any) -> dict[str, Any]:
    """Checks the arguments that choose a mapping, and returns the options of the C++ half."""
    map_inverse = _arguments.flag("map_inverse", map_inverse)
    if map is None:
        for name, is_given in {"config": config is not None, "sizes": sizes is not None, "map_inverse": map_inverse}.items():
            if is_given:
                raise failure("invalid_argument", f"the argument {name} is for a mapping", hint="pass map")
        return {"map": None}
    return {"map": _named(map), "map_inverse": map_inverse, "config": _config(config), "sizes": _sizes(sizes)}


def _named(map: Any) -> str:
    """Returns the names of two conventions, or a path that the C++ half recognises as one: it ends in ".toml" or has a
    slash."""
    if isinstance(map, os.PathLike) or (isinstance(map, str) and map.endswith(".toml")):
        path = _arguments.path(map)
        return path if path.endswith(".toml") or "/" in path else f"./{path}"
    if not isinstance(map, str) or "\n" in map:
        raise _arguments.wrong("map", "the names of two conventions, or the path of a .toml file", map)
    return map


def _config(config: Any) -> str | dict[str, int] | None:
    """Returns a path, or the numbers, texts, and lists of a configuration, named as those of a JSON file."""
    if config is None:
        return None
    if not isinstance(config, Mapping):
        if not isinstance(config, (str, bytes, os.PathLike)):
            raise _arguments.wrong("config", "the path of a JSON file, or a mapping of numbers", config)
        return _arguments.source(config)
    numbers: dict[str, int] = {}
    _add_numbers(config, "", 0, numbers)
    _add_common_names(numbers)
    others: dict[str, int] = {}
    _add_texts_and_lists(config, "", 0, others)
    return {**others, **numbers}


def _add_numbers(members: Mapping[Any, Any], prefix: str, level: int, to: dict[str, int]) -> None:
    """Adds the integers and booleans of a configuration; other values are left out, as from a file."""
    for key, value in _members(members, level):
        if isinstance(value, Mapping):
            if level < _MOST_LEVELS:
                _add_numbers(value, f"{prefix}{key}.", level + 1, to)
            continue
        number = _integer(value)
        if number is not None:
            to[prefix + key] = number


def _members(members: Mapping[Any, Any], level: int) -> Iterator[tuple[str, Any]]:
    """Yields keys as texts, with their values. `to_dict()` of every configuration of Transformers has an `id2label`
    whose keys are integers. `json.dump` writes these as texts."""
    for key, value in members.items():
        if isinstance(key, str):
            yield key, value
        elif level == 0:
            raise _arguments.wrong("config", "a mapping whose keys are texts", members)
        elif isinstance(key, int):
            yield str(key), value


def _add_common_names(numbers: dict[str, int]) -> None:
    if "dim" not in numbers or "n_layers" not in numbers:
        return
    for own, common in _COMMON_NAMES.items():
        if own in numbers:
            numbers.setdefault(common, numbers[own])
    if numbers.get("vocab_size", 0) < 0:  # Llama 1 and 2 take the size from the tokenizer
        del numbers["vocab_size"]


def _integer(value: Any) -> int | None:
    """The value if it is an integer of 64 bits, or a boolean."""
    try:
        number = int(operator.index(value))
    except Exception:  # not an integer
        return None
    return number if -2**63 <= number < 2**63 else None


def _add_texts_and_lists(members: Mapping[Any, Any], prefix: str, level: int, to: dict[str, int]) -> None:
    """Adds the names of texts, fractions, and lists, as `read_config` of the C++ half does."""
    for key, value in _members(members, level):
        name = prefix + key
        if isinstance(value, Mapping):
            if level < _MOST_LEVELS:
                _add_texts_and_lists(value, f"{name}.", level + 1, to)
        elif isinstance(value, str):
            _add_text(name, value, to)
        elif isinstance(value, Real) and not isinstance(value, int) and _integer(value) is None:
            if math.isfinite(value) and value != math.floor(value):
                to[f"{name}.fraction"] = 1
        elif isinstance(value, (list, tuple)):
            to[f"{name}.length"] = len(value)
            for index, element in enumerate(value):
                number = _integer(element)
                if isinstance(element, str):
                    _add_text(f"{name}[{index}]", element, to)
                elif number is not None:
                    to[f"{name}[{index}]"] = number
                    if not isinstance(element, bool):
                        to[f"{name}.has[{number}]"] = 1


def _add_text(name: str, text: str, to: dict[str, int]) -> None:
    if re.fullmatch(r"[A-Za-z0-9_.]+", text):
        to[f"{name}.{text}"] = 1


def _sizes(sizes: Any) -> dict[str, int]:
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping) or not all(isinstance(name, str) for name in sizes):
        raise _arguments.wrong("sizes", "a mapping from names to integers", sizes)
    return {name: _arguments.number("sizes", value) for name, value in sizes.items()}
