"""The controller's two input files (wire.head), read once at start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.head import HEAD_FORMAT, HeadDocument, HeadSecret
from gym_compose.wire.slice import SecretValue

_Model = TypeVar("_Model", bound=BaseModel)


def read_document(path: Path) -> HeadDocument:
    """The public document. Raises InvalidInputError when it cannot be read or is of another format."""
    document = _read(path, HeadDocument)
    if document.format != HEAD_FORMAT:
        raise InvalidInputError(
            f"format {document.format} is not {HEAD_FORMAT}", where=str(path), hint="It was made by another gym_compose."
        )
    return document


def read_secret(path: Path | None) -> HeadSecret:
    """The secret document; empty without a path."""
    return HeadSecret() if path is None else _read(path, HeadSecret)


def reveal(config: dict[str, Any], values: tuple[SecretValue, ...]) -> dict[str, Any]:
    """A copy of ``config`` with each secret value put back at its path. Raises InvalidInputError for a path that is not there."""
    revealed: dict[str, Any] = _copy(config)
    for secret in values:
        place: Any = revealed
        try:
            for step in secret.path[:-1]:
                place = place[step]
            place[secret.path[-1]]
            place[secret.path[-1]] = secret.value
        except (KeyError, IndexError, TypeError):
            dotted = ".".join(str(step) for step in secret.path)
            raise InvalidInputError(f"the secret file names {dotted!r}, which the head document does not hold") from None
    return revealed


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValidationError as error:
        # Never the input itself: the secret file passes through here.
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        raise InvalidInputError(f"{place}: {first['msg']}", where=str(path)) from None
