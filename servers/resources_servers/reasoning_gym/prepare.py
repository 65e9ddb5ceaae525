#!/usr/bin/env python3
"""Datasets of reasoning-gym by family, size and seed.

    python prepare.py --family chain_sum --family letter_counting --size 50 --seed 7 --output DIR [--flat]

writes ``DIR/<family>.jsonl`` (materialized rows, one taskset a family), with ``--flat`` also ``DIR/<family>_flat.jsonl`` (flat rows, for
``legacy_agent``), and ``DIR/answers.jsonl`` (prompt and reference answer, for ``scripted_model``). Equal arguments give equal bytes.
``--demo`` stands for the arguments of the quickstart configs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from reasoning_gym_families import Families
from reasoning_gym_rows import Json, Task, make_tasks, to_jsonl

from gym_compose.wire.errors import GymComposeError, InvalidInputError

DEMO_FAMILIES = ("chain_sum", "letter_counting")
DEMO_SIZE = 50
DEMO_SEED = 7
DATA = Path(__file__).resolve().parent / "data"
ANSWERS = "answers.jsonl"


def prepare(
    family: str | None = None, size: int = DEMO_SIZE, seed: int = DEMO_SEED, output: str | Path = DATA, jsonl_fpath: str | None = None
) -> Path:
    """Write the dataset of one family and return its path: the entry point of ``gym eval prepare`` (contract-data 3.7).

    ``family``: default that of the file ``jsonl_fpath``, which the command hands over. The demo's families are written together, as they
    share one file of answers.
    """
    name = family or (Path(jsonl_fpath).stem if jsonl_fpath is not None else DEMO_FAMILIES[0])
    wanted = name.removesuffix("_flat")
    demo = wanted in DEMO_FAMILIES
    write(DEMO_FAMILIES if demo else [wanted], size=size, seed=seed, output=Path(output), flat=demo or wanted != name)
    return Path(output) / f"{name}.jsonl"


def write(families: Sequence[str], *, size: int, seed: int, output: Path, flat: bool) -> list[Path]:
    """Write the files of all ``families`` and return their paths, the answers last. Nothing is written when one family fails."""
    package = Families()
    tasks = {family: list(make_tasks(package, family, size, seed)) for family in dict.fromkeys(families)}
    forms: list[tuple[str, Callable[[Task], Json]]] = [("{}.jsonl", Task.materialized_row)]
    if flat:
        forms.append(("{}_flat.jsonl", Task.flat_row))
    contents = {output / name.format(family): to_jsonl(form(task) for task in tasks[family]) for family in tasks for name, form in forms}
    everything = [task for family in tasks for task in tasks[family]]
    contents[output / ANSWERS] = to_jsonl(task.answer_row() for task in everything if task.reference_scores)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            partial = path.with_name(f".{path.name}.{os.getpid()}")
            partial.write_bytes(content)
            partial.replace(path)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write the dataset: {error.strerror}", where=str(output), hint="Name another directory with --output."
        ) from None
    return list(contents)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(description="Make datasets of reasoning-gym.")
    parser.add_argument("--family", action="append", default=[], help="family of reasoning-gym; may be given several times")
    parser.add_argument("--size", type=_positive, default=DEMO_SIZE, help="tasks of each family (default %(default)s)")
    parser.add_argument("--seed", type=int, default=DEMO_SEED, help="seed of the package's generators (default %(default)s)")
    parser.add_argument("--output", type=Path, default=DATA, help="directory of the files (default: data/ beside this script)")
    parser.add_argument("--flat", action="store_true", help="write flat rows too")
    parser.add_argument("--demo", action="store_true", help=f"the quickstart's families ({', '.join(DEMO_FAMILIES)}), flat rows too")
    parser.add_argument("--list", action="store_true", help="print the families and end")
    given = parser.parse_args(arguments)
    try:
        if given.list:
            print("\n".join(Families()))
            return 0
        families = [*given.family, *(DEMO_FAMILIES if given.demo else ())]
        if not families:
            parser.error("name at least one --family (see --list), or give --demo")
        for path in write(families, size=given.size, seed=given.seed, output=given.output, flat=given.flat or given.demo):
            print(path)
    except GymComposeError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())
