"""Audio of a row: the Responses API has no part for it, so it rides in ``metadata`` (contract-servers 4.4)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from vllm_config import VLLMModelConfig

Json = dict[str, Any]

KEYS = ("audio_data", "audio_path", "audio_paths")
_SUBTYPES = {".wav": "wav", ".flac": "flac", ".mp3": "mpeg", ".m4a": "mp4", ".ogg": "ogg", ".opus": "opus"}


def audio_keys(body: Json) -> list[str]:
    """The audio keys that the metadata of a request has."""
    metadata = body.get("metadata") or {}
    return [key for key in KEYS if metadata.get(key)]


def with_audio(body: Json, config: VLLMModelConfig) -> Json:
    """``body`` with its audio before the text of the last user message, out of the metadata.

    Raises ValueError when more than one key is there, a path is relative without ``audio_root``, or a format is not known; OSError for a
    file that cannot be read.
    """
    found = audio_keys(body)
    if not found:
        return body
    if len(found) > 1:
        raise ValueError(f"metadata has {', '.join(found)}: one of them is meant")
    (key,) = found
    metadata = dict(body["metadata"])
    value = metadata.pop(key)
    if key == "audio_paths":
        if not isinstance(value, list):
            raise ValueError(f"metadata.audio_paths must be a list, not {type(value).__name__}")
        urls = [_data_url(path, config) for path in value]
    else:
        urls = [value if key == "audio_data" else _data_url(value, config)]
    blocks = [{"type": "audio_url", "audio_url": {"url": url}} for url in urls]
    done = {**body, "messages": _before_text(body["messages"], blocks), "metadata": metadata}
    if not metadata:
        del done["metadata"]
    return done


def _before_text(messages: list[Json], blocks: list[Json]) -> list[Json]:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            content = messages[index].get("content")
            rest = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
            return [*messages[:index], {**messages[index], "content": [*blocks, *rest]}, *messages[index + 1 :]]
    return [*messages, {"role": "user", "content": blocks}]


def _data_url(name: str, config: VLLMModelConfig) -> str:
    path = Path(name)
    if not path.is_absolute():
        if not config.audio_root:
            raise ValueError(f"the audio path {name!r} is relative, and audio_root is not set")
        path = Path(config.audio_root) / path
    subtype = _SUBTYPES.get(path.suffix.lower())
    if subtype is None:
        raise ValueError(f"{path}: audio of a kind that is not known; known are {', '.join(sorted(_SUBTYPES))}")
    return f"data:audio/{subtype};base64,{base64.b64encode(path.read_bytes()).decode()}"
