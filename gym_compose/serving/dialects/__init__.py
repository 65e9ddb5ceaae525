"""The three dialects of model servers and the ways between them (contract-servers 4.1, 4.3).

    Responses request ──chat_request, chat_messages──▶ chat request
    chat completion   ──chat_answer──▶ Responses object
    Messages request  ──messages_request──▶ Responses request
    Responses object  ──messages_answer──▶ message

``responses_stream``, ``chat_stream`` and ``messages_answer`` replay a whole answer as the events of a stream (``events``); a backend is
never asked to stream. ``errors`` has what goes wrong, as each dialect says it. Everything but ``events`` is pure.
"""

from __future__ import annotations

from gym_compose.serving.dialects.chat_answer import to_response
from gym_compose.serving.dialects.chat_request import to_chat_request
from gym_compose.serving.dialects.errors import ConversionError, InvalidModelAnswer
from gym_compose.serving.dialects.messages_answer import to_message
from gym_compose.serving.dialects.messages_request import to_responses_params

__all__ = ["ConversionError", "InvalidModelAnswer", "to_chat_request", "to_message", "to_response", "to_responses_params"]
