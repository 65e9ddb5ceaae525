"""The head server's document: the config with secrets masked, who is where, what to wait for (contract-config 3 and 4.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gym_compose.compiler import document as doc
from gym_compose.compiler.addresses import Address, probe_url
from gym_compose.compiler.errors import CompileError, dotted
from gym_compose.compiler.options import CompileOptions
from gym_compose.config.model import GymConfig, KeyPath
from gym_compose.wire.head import HeadDocument, HeadSecret, InstanceRecord, Listen, ModelEndpoint
from gym_compose.wire.names import (
    CONTAINER_PUBLISHED,
    EXTENSION_KEY,
    HEAD_ALIAS,
    HEAD_PORT_INSIDE,
    HEAD_PORT_PUBLISHED,
)
from gym_compose.wire.slice import SecretValue

_MODELS = "responses_api_models"
_DEFAULT_TIMEOUT_SECONDS = 600.0
"""Both readiness timeouts, where the config says nothing or null (contract-config 1.3)."""


def head_document(
    config: GymConfig,
    document: Mapping[str, Any],
    secrets: frozenset[KeyPath],
    addresses: Mapping[str, Address],
    directories: Mapping[str, str],
    options: CompileOptions,
) -> HeadDocument:
    """``document`` is the plain, addressed config, ``directories`` where each instance's server directory is at run time.

    Raises CompileError when a readiness timeout is no number.
    """
    docker = options.target == "docker"
    return HeadDocument(
        gym_compose=options.version,
        project=options.project,
        engine=options.target,
        config=doc.masked(dict(document), secrets),
        instances=tuple(
            InstanceRecord(
                config_path=instance.name,
                dir_path=directories[instance.name],
                entrypoint=instance.entrypoint,
                host=addresses[instance.name].host,
                name=instance.implementation,
                pid=None,
                port=addresses[instance.name].port,
                process_name=instance.name,
                server_type=instance.server_type,
                url=addresses[instance.name].url,
            )
            for instance in config.instances
        ),
        endpoints=tuple(model_endpoints(document, secrets)),
        server_spinup_timeout_seconds=_seconds(document, "server_spinup_timeout_seconds"),
        model_endpoint_readiness_timeout_seconds=_seconds(document, "model_endpoint_readiness_timeout_seconds"),
        listen=Listen(host=HEAD_ALIAS, port=HEAD_PORT_INSIDE) if docker else Listen(host="127.0.0.1", port=options.head_port),
        listen_published=Listen(host="0.0.0.0", port=HEAD_PORT_PUBLISHED) if docker else None,
        published_file=CONTAINER_PUBLISHED if docker else None,
    )


def head_secret(document: Mapping[str, Any], secrets: frozenset[KeyPath], *, reveal: bool) -> HeadSecret:
    """The values that the inner listener puts back: all of them under ``compose: {head_secrets: true}``, else none."""
    if not reveal:
        return HeadSecret()
    values = (
        SecretValue(path=path, value=value) for path, value in doc.walk(dict(document)) if path in secrets and path[0] != EXTENSION_KEY
    )
    return HeadSecret(values=tuple(values))


def model_endpoints(document: Mapping[str, Any], secrets: frozenset[KeyPath]) -> Iterator[ModelEndpoint]:
    """What to wait for after the servers: direct fields of model servers' blocks whose name ends in ``base_url``, text or list, each
    address once (contract-config 4.6). A ``…/v1`` address is asked for ``/models``.

    The document is public: user part and query are left out, and of a secret URL everything after the port (a key may stand in its path);
    any HTTP answer counts, so the origin does as well.
    """
    seen: set[str] = set()
    for name, value in document.items():
        blocks = value.get(_MODELS) if isinstance(value, dict) else None
        for implementation, block in blocks.items() if isinstance(blocks, dict) else ():
            for field, urls in block.items() if isinstance(block, dict) else ():
                if not field.endswith("base_url"):
                    continue
                for path, url in doc.walk(urls, (name, _MODELS, implementation, field)):
                    address = probe_url(url, origin_only=path in secrets) if isinstance(url, str) else None
                    if address is None or address in seen:
                        continue
                    seen.add(address)
                    yield ModelEndpoint(url=f"{address}/models" if address.endswith("/v1") else address, key=f"{name}.{field}")


def _seconds(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if value is None:
        return _DEFAULT_TIMEOUT_SECONDS
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise CompileError(
            f"{value!r} is not a number of seconds", where=dotted((key,)), hint="Give a number; 0 or less lifts the bound."
        ) from None
