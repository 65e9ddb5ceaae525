"""Locks: what an installer chose for one set of requirements, kept so that a rebuild installs the same versions.

A lock is a file of ``.gym/requirements.lock/``, beside the projects of a working directory and made to be committed. It is found by what
was asked for (lines, overrides, extras, NeMo Gym's version, the pins below), not by the image's recipe: another Dockerfile of ours keeps
it. It holds what the layer adds to the packages below it, one ``name==version`` a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gym_compose.compiler import document as doc
from gym_compose.compiler.deployment import Image
from gym_compose.compiler.recipe import KEY_LENGTH, given, text_lines
from gym_compose.wire.redaction import Redactor

LOCK_DIRECTORY = "requirements.lock"
"""Below ``.gym``. No project can be called that: their names have no dot."""
RESOLVE_VARIABLE = "GYM_RESOLVE"
"""Build argument of such an image, of the builder's environment: a new value resolves anew where there is no lock, cache or not."""
_HEADING = "Resolved by `gym compose build` for the lines below, and installed as it stands here from then on; --upgrade resolves anew."


def lock_lines(text: str) -> tuple[str, ...]:
    """The lines of a lock, without comments and blanks."""
    return tuple(line for line in (raw.strip() for raw in text.splitlines()) if line and not line.startswith("#"))


def lock_text(asked: Iterable[str], lines: Iterable[str]) -> str:
    """A lock file. It is made to be committed: passwords in the URLs of ``asked``, which are comments, are masked."""
    return text_lines([f"# {_HEADING}", *(f"#   {Redactor().text(line)}" for line in asked), *lines])


def lock_digest(text: str) -> str:
    return doc.digest("\n".join(lock_lines(text)).encode())


def with_lock(image: Image, slug: str, asked: tuple[tuple[str, str], ...], locks: Mapping[str, str], *, upgrade: bool) -> Image:
    """``image`` with its lock, if there is one among ``locks`` (name to text). ``asked`` is what decides the resolution.

    The lock is in the context and not in the key: the same name is built with or without it, and the engine sees by a label which.
    """
    name = f"{slug}-{doc.digest(doc.canonical([list(pair) for pair in asked]))[:KEY_LENGTH]}"
    text = "" if upgrade else locks.get(name, "")
    lock = text if lock_lines(text) else None
    return replace(image, context=(*image.context, given("lock.txt", lock or "")), lock_name=name, lock=lock, renew=upgrade)
