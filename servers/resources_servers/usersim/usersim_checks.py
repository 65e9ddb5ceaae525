"""The verdict of a conversation, from what was said and what the task expects: no model, no clock."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from usersim_orders import statuses
from usersim_transcript import Transcript

if TYPE_CHECKING:
    from task_data import Expected


def components(expected: Expected, orders: Mapping[str, str], transcript: Transcript) -> dict[str, float]:
    """Parts of the reward by name, each from 0 to 1; only what the task expects, and always ``finished``.

    ``orders`` are the statuses at the begin of the conversation.
    """
    said = [_plain(text) for text in transcript.said_by_assistant()]
    found = {"finished": float(transcript.stop in expected.stop)}
    if expected.facts:
        found["facts"] = sum(_one_stands(ways, said) for ways in expected.facts) / len(expected.facts)
    if expected.forbidden:
        found["forbidden"] = float(not _one_stands(expected.forbidden, said))
    if expected.order_status:
        after = statuses(orders, transcript.output)
        found["orders"] = float(all(after[order] == status for order, status in expected.order_status.items()))
    if expected.max_turns is not None:
        found["turns"] = float(transcript.turns <= expected.max_turns)
    return found


def reward(parts: Mapping[str, float]) -> float:
    """The product: what must not happen takes the whole reward, a fact that is missing its share."""
    return math.prod(parts.values())


def mentioned(phrase: str, text: str) -> bool:
    """Whether ``phrase`` stands in ``text`` as whole words, whatever the case, the width of blanks and the form of characters."""
    return _stands(_plain(phrase), _plain(text))


def _one_stands(ways: str | Iterable[str], said: list[str]) -> bool:
    phrases = [ways] if isinstance(ways, str) else ways
    return any(_stands(_plain(phrase), text) for phrase in phrases for text in said)


def _stands(phrase: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) is not None


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
