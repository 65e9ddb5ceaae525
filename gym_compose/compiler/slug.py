"""Names derived from instance names: the compose service, the DNS alias, the image repository (design decision 5)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gym_compose.compiler.errors import NameClashError
from gym_compose.wire.names import ALIAS_SUFFIX, DRIVER_SERVICE, HEAD_ALIAS, HEAD_SERVICE, RELAY_SERVICE

SLUG_LENGTH = 59
"""With ``.gym`` 63 characters: the bound of one DNS label, which some resolvers apply to the whole name."""
_DIGEST_LENGTH = 8
_SERVICE = re.compile(r"[a-zA-Z0-9._-]+")
_NOT_SLUG = re.compile(r"[^a-z0-9]")
_NOT_SERVICE = re.compile(r"[^a-zA-Z0-9._-]")


def slug(name: str) -> str:
    """``name`` as a DNS label: lower case, ``[a-z0-9-]``, no ``-`` at either end, 1 to 59 characters.

    A longer name keeps its first 50 characters and gets a digest of the whole, so that long names that differ at their end stay apart.
    """
    text = _NOT_SLUG.sub("-", name.lower()).strip("-")
    if not text:
        return "s-" + _digest(name)
    if len(text) <= SLUG_LENGTH:
        return text
    return text[: SLUG_LENGTH - _DIGEST_LENGTH - 1].rstrip("-") + "-" + _digest(name)


def service_name(instance: str) -> str:
    """The compose service: the instance's own name where compose's grammar allows it, else that with ``-`` for what it does not."""
    if _SERVICE.fullmatch(instance):
        return instance
    return _NOT_SERVICE.sub("-", instance) or "s-" + _digest(instance)


def repository(name: str) -> str:
    """An image repository below ``gym-compose/``: a slug in which no two separators follow each other (the engine refuses ``a---b``)."""
    return re.sub(r"-+", "-", slug(name))


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_LENGTH]


@dataclass(frozen=True)
class InstanceNames:
    """What one instance is called in compose and in DNS."""

    service: str
    alias: str


def assign_names(instances: Iterable[str]) -> Mapping[str, InstanceNames]:
    """Service and alias of each instance, in the given order.

    Raises NameClashError when two would share a service name or an alias, or one takes a name of the head server or the driver. Compose
    makes each service name an alias too, so both kinds share one space.
    """
    taken: dict[str, tuple[str, str]] = {
        HEAD_SERVICE: ("the head server", "service"),
        HEAD_ALIAS: ("the head server", "alias"),
        DRIVER_SERVICE: ("the driver", "service"),
        RELAY_SERVICE: ("the host relay", "service"),
    }
    names: dict[str, InstanceNames] = {}
    for instance in instances:
        found = InstanceNames(service_name(instance), slug(instance) + ALIAS_SUFFIX)
        for name, kind in dict.fromkeys(((found.service, "service"), (found.alias, "alias"))):
            holder = taken.get(name)
            if holder is not None and holder[0] != instance:
                raise NameClashError(holder[0], instance, name, kind)
            taken[name] = (instance, kind)
        names[instance] = found
    return names
