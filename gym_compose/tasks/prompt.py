"""Prompt templates: a YAML file with ``user`` and perhaps ``system``, filled from a row's top-level keys (contract-data 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gym_compose.tasks.errors import DatasetError
from gym_compose.tasks.rows import PARAMS


@dataclass(frozen=True)
class Prompt:
    """Templates in the grammar of ``str.format``; a brace that is meant is doubled."""

    user: str
    system: str | None = None
    path: str = ""

    def apply(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of ``row`` whose ``responses_create_params.input`` are the filled messages; other parameters stay.

        Raises DatasetError naming the field that the row does not have, or the template that is none.
        """
        messages = []
        try:
            if self.system is not None:
                messages.append({"role": "system", "content": self.system.format_map(row)})
            messages.append({"role": "user", "content": self.user.format_map(row)})
        except KeyError as error:
            raise DatasetError(
                f"the prompt names the field {error}, which a row does not have", where=self.path, hint=f"The row has: {', '.join(row)}."
            ) from None
        except (ValueError, AttributeError, IndexError, TypeError) as error:
            raise DatasetError(f"the prompt cannot be filled: {error}", where=self.path, hint="Double the braces that are text.") from None
        params = row.get(PARAMS)
        return {**row, PARAMS: {**(params if isinstance(params, Mapping) else {}), "input": messages}}


def has_input(row: Mapping[str, Any]) -> bool:
    """Whether the row brings an input of its own, which a prompt would overwrite."""
    params = row.get(PARAMS)
    return bool(params.get("input")) if isinstance(params, Mapping) else False


def load_prompt(path: Path) -> Prompt:
    """Read a prompt file. Raises DatasetError when it cannot be read or does not hold the fields."""
    try:
        data = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except OSError as error:
        raise DatasetError(f"the prompt cannot be read: {error.strerror}", where=str(path)) from None
    except yaml.YAMLError as error:
        raise DatasetError(f"the prompt is not valid YAML: {error}", where=str(path)) from None
    if not isinstance(data, Mapping) or not isinstance(data.get("user"), str) or not isinstance(data.get("system"), str | None):
        raise DatasetError("a prompt has the text `user` and perhaps the text `system`", where=str(path))
    return Prompt(data["user"], data.get("system"), str(path))
