"""Which vLLM serves which rollout: one of several URLs by session, or the one that a file publishes (contract-servers 4.4)."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from vllm_config import VLLMModelConfig

from gym_compose.serving.upstream import Upstream

Clock = Callable[[], float]

_log = logging.getLogger(__name__)


class EndpointUnpublishedError(Exception):
    """The endpoint file has been absent or empty for longer than its grace."""


class Replicas:
    """The endpoints of one server. All turns of a session go to one of them, whose cache holds the conversation's prefix."""

    def __init__(self, config: VLLMModelConfig, make: Callable[[str], Upstream], clock: Clock = time.monotonic) -> None:
        self._config = config
        self._make = make
        self._clock = clock
        self._urls = list(config.base_url)
        self._upstreams = [make(url) for url in self._urls]
        self._checked: float | None = None
        self._changed: float | None = None
        self._missing_since: float | None = None

    def of(self, session_id: str) -> Upstream:
        """The endpoint of a session: SHA-256 of its id, modulo their number. Raises EndpointUnpublishedError."""
        if self._config.endpoint_file:
            self._follow(Path(self._config.endpoint_file))
        number = int.from_bytes(hashlib.sha256(session_id.encode()).digest()[:8], "big")
        return self._upstreams[number % len(self._upstreams)]

    def _follow(self, file: Path) -> None:
        """Take over what the file says. A file that cannot be read, other than one that is not there, changes nothing."""
        now = self._clock()
        if self._checked is None or now - self._checked >= self._config.endpoint_check_interval_s:
            self._checked = now
            try:
                changed = file.stat().st_mtime
                url = file.read_text().strip() if changed != self._changed else None
            except FileNotFoundError:
                changed, url = None, ""
            except OSError as error:
                _log.warning("%s cannot be read (%s); the endpoint stays", file, error.strerror)
                return
            self._changed = changed
            if url is not None:
                self._missing_since = (self._missing_since if self._missing_since is not None else now) if url == "" else None
            if url and [url] != self._urls:
                _log.warning("the endpoint is now %s", url)
                self._urls, self._upstreams = [url], [self._make(url)]
        if self._missing_since is not None and now - self._missing_since > self._config.endpoint_stale_grace_s:
            raise EndpointUnpublishedError(f"{file} has named no endpoint for {now - self._missing_since:.0f} s; the last one may be gone")
