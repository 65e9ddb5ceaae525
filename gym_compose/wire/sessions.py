"""Session cookies: names and keys that servers and their callers share (contract-servers 3.1)."""

from __future__ import annotations

from typing import Final

SESSION_ID_KEY: Final = "session_id"
AGENT_SESSION_KEY: Final = "agent_session_id"
"""Key of the agent-session marker inside an agent's session cookie."""


def cookie_name(class_name: str, instance: str) -> str:
    """``<python class>___<instance name>``. It holds whatever the instance is called; clients send it back as they got it."""
    return f"{class_name}___{instance}"
