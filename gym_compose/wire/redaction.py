"""Masking of secrets in text that leaves the program: errors, log lines, argv, progress (field-notes A5.2, A5.3).

Three rules, in this order: known values (every resolved secret of ``MIN_LENGTH`` characters and more, also as JSON, URL and shell escape
them), credentials in URLs, and tokens that betray themselves by a prefix. Masking twice changes nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from gym_compose.wire.slice import MASK

MIN_LENGTH = 6
"""A shorter value is not searched for: it would mask ordinary words, and no real key is that short."""

# The scheme is bounded: else each letter of a long line (a printed image) is tried as the begin of one, which takes its length squared.
_URL_CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<userinfo>[^\s/?#\"'<>@]+(?:@[^\s/?#\"'<>@]+)*)@")

# Token formats of the services that Gym configs name. Anchored at a word start, so that "task-1234567890" is no "sk-" key.
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{8,}"  # OpenAI, Anthropic, OpenRouter
    r"|nvapi-[A-Za-z0-9_-]{8,}"  # NVIDIA
    r"|hf_[A-Za-z0-9]{8,}"  # Hugging Face
    r"|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_[A-Za-z0-9_]{8,}"  # GitHub
    r"|glpat-[A-Za-z0-9_-]{8,}"  # GitLab
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"  # AWS
    r"|AIza[A-Za-z0-9_-]{16,}"  # Google
    r"|xox[abprs]-[A-Za-z0-9-]{8,}"  # Slack
    r"|gsk_[A-Za-z0-9]{8,}"  # Groq
    r")"
)
_BEARER = re.compile(r"(?i)\b(?P<kind>bearer|basic)(?P<space>\s+)(?P<token>[A-Za-z0-9._~+/-]{8,}=*)")


class Redactor:
    """Masks what it knows. Immutable; ``with_values`` makes a wider one.

    ``values`` are secret strings; those shorter than ``MIN_LENGTH`` are left alone. Each line of a value of several lines counts by
    itself too, since logs are cut into lines.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(value for value in values if len(value) >= MIN_LENGTH)
        forms = {form for value in self._values for form in _forms(value)}
        # Longest first: a value that contains another one must not leave its rest behind.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    @property
    def values(self) -> frozenset[str]:
        """The secret values that are searched for."""
        return self._values

    def with_values(self, values: Iterable[str]) -> Redactor:
        """A redactor that knows ``values`` as well."""
        return Redactor((*self._values, *values))

    def text(self, text: str) -> str:
        """``text`` with every secret replaced by ``****``."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _URL_CREDENTIALS.sub(rf"\g<scheme>{MASK}@", text)
        text = _BEARER.sub(rf"\g<kind>\g<space>{MASK}", text)
        return _PREFIXED.sub(MASK, text)

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Each line masked; lazy."""
        for line in lines:
            yield self.text(line)

    def __repr__(self) -> str:
        return f"Redactor({len(self._values)} values)"


def _forms(value: str) -> Iterator[str]:
    """How a value may stand in text: as it is, JSON-escaped, URL-quoted, shell-quoted, and line by line."""
    lines = [line for line in value.splitlines() if len(line) >= MIN_LENGTH] if "\n" in value or "\r" in value else []
    for form in (value, *lines):
        yield form
        yield json.dumps(form)[1:-1]
        yield json.dumps(form, ensure_ascii=False)[1:-1]
        # A lone surrogate cannot be URL-quoted; "replace" writes what such a program would write too.
        yield quote(form, safe="", errors="replace")
        yield quote(form, errors="replace")
        yield quote_plus(form, errors="replace")
        yield shlex.quote(form)
        yield repr(form)[1:-1]
