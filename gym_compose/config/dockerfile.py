"""What is read of a server's own Dockerfile: the build arguments that it asks for."""

from __future__ import annotations

import re
from pathlib import Path

from gym_compose.wire.errors import InvalidInputError

DOCKERFILE = "Dockerfile"
_ARGUMENT = re.compile(r"^\s*ARG\s+(?P<names>.+)$", re.IGNORECASE | re.MULTILINE)


def declared_arguments(file: Path) -> tuple[str, ...]:
    """Names in ``ARG`` instructions, sorted and without repeats. Raises InvalidInputError when the file cannot be read."""
    try:
        text = re.sub(r"\\\r?\n", " ", file.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot be read: {error}.", where=str(file)) from error
    words = (word for match in _ARGUMENT.finditer(text) for word in match["names"].split())
    return tuple(sorted({word.partition("=")[0] for word in words if re.match(r"[A-Za-z_]", word)}))
