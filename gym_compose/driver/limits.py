"""As many open files as this process may have: each request in flight is one."""

from __future__ import annotations

import contextlib
import resource


def raise_file_limit() -> None:
    """Raise the soft limit to the hard one. Where that is not allowed (a sandbox), requests wait for files that others give back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
