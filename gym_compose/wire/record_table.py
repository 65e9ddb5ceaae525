"""Records on disk, in DuckDB: statistics of any number of records in bounded memory (contract-data 4.3).

Records come one by one, in any order, and go into a temporary file of cells; DuckDB sorts them, spilling what exceeds its memory limit,
and answers with the summaries that ``wire.table.MemoryTable`` makes in Python (a test compares the two on drawn records). One thread:
sums then always add up in the same order, so equal records give equal bytes.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import orjson

from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.perf import PERF_NAMES, PerfColumns, Spread, has_tokens, perf_values
from gym_compose.wire.run_body import MASK_SAMPLE, PERF
from gym_compose.wire.statistics import Summary
from gym_compose.wire.table import Counts, Group, Record, Repeat, key_of, measured, twice

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT: Final = "256MB"
TASKS_AT_ONCE: Final = 4000
"""Tasks that are read back in one query."""
_BUFFER = 1 << 20
_SUMMARY = "count({0}), favg({0}), max({0}), min({0}), median({0}), stddev_samp({0})"
_QUARTILES = _SUMMARY + ", quantile_cont({0}, 0.25), quantile_cont({0}, 0.75)"
_OF_A_GROUP = ("favg", "max", "min", "median", "stddev_samp")
_SPREAD = (
    "favg({0}), median({0}), stddev_pop({0}), min({0}), max({0}), "
    "quantile_cont({0}, 0.5), quantile_cont({0}, 0.9), quantile_cont({0}, 0.99), count({0})"
)


Shapes = dict[tuple[str, ...], tuple[int, int]]


def columns_of(shapes: Shapes) -> list[str]:
    """The columns of records in the order in which they appear in the sorted records. ``shapes``: which columns records have, and the least
    (task, rollout) that has just these."""
    return list(dict.fromkeys(name for shape in sorted(shapes, key=lambda shape: shapes[shape]) for name in shape))


class RecordWriter:
    """Takes records and makes a ``RecordTable`` of them. A context manager: without ``table`` its files are removed at the end.

    Raises InvalidInputError for a record whose indices are no whole numbers or that has an infinite number, PrerequisiteError when the
    temporary directory is full.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="gym-compose-records-", dir=directory))
        self._cells: BinaryIO = (self._directory / "cells").open("wb", buffering=_BUFFER)
        self._place: dict[str, int] = {}
        self._usual: tuple[str, ...] = ()
        self.shapes: Shapes = {}
        self._reported = 0
        self._with_tokens = 0
        self._totals: dict[str, float] = {}
        self._table: RecordTable | None = None

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._cells.close()
        if self._table is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def add(self, record: Record) -> None:
        """One record."""
        task, rollout = key = key_of(record)
        if type(task) is not int or type(rollout) is not int:
            raise InvalidInputError(f"indices of a rollout are whole numbers, not {task!r} and {rollout!r}", where="a record")
        cells: dict[str, Any] = {"task": task, "rollout": rollout}
        perf = record.get(PERF)
        if isinstance(perf, dict):
            cells["perf"] = self._perf(perf)
        if record.get(MASK_SAMPLE):
            cells["masked"] = True
        else:
            found, cells["info"] = measured(record)
            shape = tuple(found)
            least = self.shapes.get(shape)
            if least is None or key < least:
                self.shapes[shape] = key
                for name in shape:
                    self._place.setdefault(name, len(self._place))
            values = list(found.values())
            # All columns in the order in which they were met, as nearly all records have them.
            cells["cells"] = values if shape == self._usual and math.isfinite(sum(values)) else self._placed(found, key)
        try:
            self._cells.write(orjson.dumps(cells, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise _full(error, self._directory) from None

    def table(self) -> RecordTable:
        """The records, sorted. Raises ValueError as ``MemoryTable`` does. Afterwards nothing more can be added."""
        try:
            self._cells.close()
        except OSError as error:
            raise _full(error, self._directory) from None
        columns = {name: self._place[name] for name in columns_of(self.shapes)}
        self._table = RecordTable(self._directory, columns, self._reported, self._with_tokens, self._totals)
        return self._table

    def _perf(self, perf: Mapping[str, Any]) -> list[float | None]:
        self._reported += 1
        self._with_tokens += has_tokens(perf)
        found = perf_values(perf)
        for name, value in found.items():
            self._totals[name] = self._totals.get(name, 0) + value
        return [found.get(name) for name in PERF_NAMES]

    def _placed(self, found: Mapping[str, float], key: tuple[int, int]) -> list[float | None]:
        cells: list[float | None] = [None] * len(self._place)
        for name, value in found.items():
            if math.isinf(value):
                raise InvalidInputError(f"{name} is infinite, which JSON cannot say", where=f"rollout {key[0]}:{key[1]}")
            cells[self._place[name]] = value  # NaN is written as null: both are missing
        self._usual = tuple(self._place)
        return cells


class GroupRow(NamedTuple):
    """A task's scored records as they are read back. ``values``: mean, max, min, median and sample std, each of all columns; None where
    a column has no value, or no second one for its std."""

    task: int
    rows: int
    infos: list[dict[str, Any]]
    values: Sequence[float | None]

    def group(self, columns: Sequence[str]) -> Group:
        """With its columns by name."""
        found = {}
        for place, name in enumerate(columns):
            mean, maximum, minimum, median, std = self.values[place :: len(columns)]
            if mean is not None and maximum is not None and minimum is not None and median is not None:
                # Without a std there is one value: that is all that the metrics of a group ask the count for.
                found[name] = Summary(self.rows if std is not None else 1, mean, maximum, minimum, median, math.nan if std is None else std)
        return Group(self.task, self.rows, found, self.infos)


class RecordTable:
    """A ``wire.table.Table`` on disk. Its files go when it is closed or collected."""

    def __init__(self, directory: Path, places: Mapping[str, int], reported: int, with_tokens: int, totals: Mapping[str, float]) -> None:
        import duckdb  # 0.1 s and 40 MB: only where there are many records

        self.columns: Sequence[str] = tuple(places)
        self._cells = [f"c{place}" for place in places.values()]
        self._reported, self._with_tokens, self._totals = reported, with_tokens, totals
        self._database: DuckDBPyConnection = duckdb.connect(
            str(directory / "records.duckdb"),
            config={
                "memory_limit": MEMORY_LIMIT,
                "threads": 1,
                "preserve_insertion_order": False,
                "temp_directory": str(directory / "spill"),
                "enable_external_access": True,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        self._finalizer = weakref.finalize(self, _discard, self._database, directory)
        try:
            self._load(directory, places)
        except duckdb.Error as error:
            self.close()
            raise PrerequisiteError(f"the records cannot be sorted on disk: {error}", where=str(directory)) from None
        except ValueError:
            self.close()
            raise

    def close(self) -> None:
        self._finalizer()

    def _load(self, directory: Path, places: Mapping[str, int]) -> None:
        cells = directory / "cells"
        # Numbers stand in lists by their place: as fields, names that differ only in case would be one.
        columns = [f"perf[{place + 1}] AS perf_{name}" for place, name in enumerate(PERF_NAMES)]
        columns += [f"cells[{place + 1}] AS c{place}" for place in sorted(places.values())]
        self._database.execute(
            f"CREATE TABLE records AS SELECT task, rollout, coalesce(masked, false) AS masked, info::VARCHAR AS info, {', '.join(columns)} "
            "FROM read_json($cells, format='newline_delimited', records=true, auto_detect=false, maximum_object_size=16777216, "
            "columns={task: 'BIGINT', rollout: 'BIGINT', masked: 'BOOLEAN', info: 'JSON', perf: 'DOUBLE[]', cells: 'DOUBLE[]'}) "
            "ORDER BY task, rollout",
            {"cells": str(cells)},
        )
        cells.unlink()
        double = self._database.execute(
            "SELECT task, rollout FROM records GROUP BY ALL HAVING count(*) > 1 AND bool_or(NOT masked) ORDER BY ALL LIMIT 1"
        ).fetchone()
        if double is not None:
            raise ValueError(twice(*double))
        self._database.execute("CREATE TABLE tasks AS SELECT DISTINCT task FROM records WHERE NOT masked ORDER BY task")

    def counts(self) -> Counts:
        row = self._one(
            "SELECT count(*), count(*) FILTER (NOT masked), count(DISTINCT task), count(DISTINCT task) FILTER (NOT masked), "
            "count(DISTINCT rollout) FROM records"
        )
        return Counts(*row)

    def perf(self) -> PerfColumns:
        spreads = {}
        for name, total in self._totals.items():
            *values, count = self._one(f"SELECT {_SPREAD.format(f'perf_{name}')} FROM records")
            if count:
                mean, median, std, minimum, maximum, p50, p90, p99 = values
                spreads[name] = Spread(mean, median, total, std, minimum, maximum, p50, p90, p99)
        return PerfColumns(self._reported, self._with_tokens, spreads)

    def overall(self) -> Mapping[str, Summary]:
        # One column at a time: a median needs all of its values.
        found: dict[str, Summary] = {}
        for name, cell in zip(self.columns, self._cells, strict=True):
            row = self._one(f"SELECT {_SUMMARY.format(cell)} FROM records WHERE NOT masked")
            found.update(_summaries((name,), row))
        return found

    def repeats(self) -> Iterator[Repeat]:
        present: dict[int, int] = {}
        columns: dict[int, dict[str, Summary]] = {}
        rows = self._all("SELECT rollout, count(DISTINCT task) FROM records WHERE NOT masked GROUP BY rollout ORDER BY rollout")
        for rollout, count in rows:
            present[rollout], columns[rollout] = count, {}
        for name, cell in zip(self.columns, self._cells, strict=True):
            for rollout, *row in self._all(f"SELECT rollout, {_QUARTILES.format(cell)} FROM records WHERE NOT masked GROUP BY rollout"):
                columns[rollout].update(_summaries((name,), row, quartiles=True))
        for rollout, count in present.items():
            yield Repeat(rollout, count, columns[rollout])

    @property
    def number_of_groups(self) -> int:
        return int(self._one("SELECT count(*) FROM tasks")[0])

    def groups_from(self, first: int, count: int = TASKS_AT_ONCE) -> list[GroupRow]:
        """``count`` groups from the ``first``-th on."""
        low, high = self._one(
            "SELECT min(task), max(task) FROM (SELECT task FROM tasks ORDER BY task LIMIT $n OFFSET $m)", n=count, m=first
        )
        if low is None:
            return []
        statistics = "".join(f", {name}({cell})" for name in _OF_A_GROUP for cell in self._cells)
        rows = self._all(
            f"SELECT task, count(*), string_agg(info, ',' ORDER BY rollout){statistics} "
            "FROM records WHERE NOT masked AND task BETWEEN $low AND $high GROUP BY task ORDER BY task",
            low=low,
            high=high,
        )
        return [GroupRow(task, count, orjson.loads(f"[{infos}]"), values) for task, count, infos, *values in rows]

    def _all(self, query: str, **values: Any) -> list[Any]:
        return self._database.execute(query, values or None).fetchall()

    def _one(self, query: str, **values: Any) -> Any:
        return self._all(query, **values)[0]


def _summaries(names: Sequence[str], row: Sequence[Any], *, quartiles: bool = False) -> Iterator[tuple[str, Summary]]:
    """Columns of a query's row as summaries, those without a value left out."""
    width = 8 if quartiles else 6
    for number, name in enumerate(names):
        count, mean, maximum, minimum, median, std, *quarters = row[number * width : (number + 1) * width]
        if count:
            yield name, Summary(count, mean, maximum, minimum, median, math.nan if std is None else std, *quarters)


def _full(error: OSError, directory: Path) -> PrerequisiteError:
    return PrerequisiteError(
        f"records cannot be put aside: {error.strerror or error}", where=str(directory), hint="TMPDIR names another directory."
    )


def _discard(database: DuckDBPyConnection, directory: Path) -> None:
    database.close()
    shutil.rmtree(directory, ignore_errors=True)
