"""The two files of a slice, read and put together again (``wire.slice``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from gym_compose import __version__
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.slice import SLICE_FORMAT, PublicSlice, SecretSlice, SecretValue

SliceT = TypeVar("SliceT", PublicSlice, SecretSlice)


def read_slice(path: Path, model: type[SliceT]) -> SliceT:
    """One half of a slice. Raises InvalidInputError naming the file: not there, not readable, not a slice, of another format."""
    try:
        data = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"is not JSON ({error})", where=str(path)) from None
    if isinstance(data, dict) and data.get("format") != SLICE_FORMAT:
        raise InvalidInputError(
            f"has slice format {data.get('format')!r}; this launcher reads {SLICE_FORMAT}",
            where=str(path),
            hint="Run gym compose up again.",
        )
    if isinstance(data, dict) and model is PublicSlice and data.get("gym_compose") != __version__:
        # Before validation: another version's fields would only be misreported.
        raise InvalidInputError(
            f"was made by gym_compose {data.get('gym_compose')}, and this image holds {__version__}",
            where=str(path),
            hint="Run gym compose build, then gym compose up, with one version.",
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(f"is no {model.__name__}: {field}: {first['msg']}", where=str(path)) from None


def merge(public: PublicSlice, secret: SecretSlice | None) -> dict[str, Any]:
    """The config with its secret values put back. Raises InvalidInputError for a path that is not in the public half (never its value)."""
    if secret is not None:
        for value in secret.values:
            _put(public.config, value)
    return public.config


def _put(config: Any, secret: SecretValue) -> None:
    place = ".".join(str(part) for part in secret.path)
    if not secret.path:
        raise InvalidInputError("has an empty path", where="secret slice")
    *parents, last = secret.path
    try:
        for part in parents:
            config = config[part]
        if isinstance(config, dict) and last not in config:
            raise KeyError(last)
        config[last] = secret.value
    except (KeyError, IndexError, TypeError):
        raise InvalidInputError(
            f"the public half has no key {place}",
            where="secret slice",
            hint="The two files are not of one deployment; run gym compose up again.",
        ) from None
