"""What the four server types have in common: config from the process's environment, routes, the process itself."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Self, get_type_hints

import orjson
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route

from gym_compose.serving.application import Application
from gym_compose.serving.client import HttpClient, PoolOptions, ServerClient
from gym_compose.serving.config import ServerConfig, first_block
from gym_compose.serving.endpoint import Endpoint
from gym_compose.serving.routes import health_routes, openapi_routes
from gym_compose.serving.session import SessionCookie, signing_secret
from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.names import CONFIG_DICT_VARIABLE, CONFIG_PATH_VARIABLE
from gym_compose.wire.sessions import cookie_name
from gym_compose.wire.settings import Settings

_log = logging.getLogger(__name__)


def read_config(environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The merged config of this process and the name of its instance (contract-config 5.1).

    The launcher writes JSON; YAML, as the peer's launcher does, is read too. Raises InvalidInputError naming the variable.
    """
    text = environ.get(CONFIG_DICT_VARIABLE, "")
    instance = environ.get(CONFIG_PATH_VARIABLE, "")
    if not text or not instance:
        missing = CONFIG_PATH_VARIABLE if text else CONFIG_DICT_VARIABLE
        raise InvalidInputError(
            "is not set",
            where=f"environment variable {missing}",
            hint="Start servers with python -m gym_compose.serving.launch --slice FILE.",
        )
    try:
        config = orjson.loads(text)
    except orjson.JSONDecodeError:
        import yaml  # 6 MB that a server started by the launcher never needs

        try:
            config = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InvalidInputError(f"is neither JSON nor YAML: {error}", where=f"environment variable {CONFIG_DICT_VARIABLE}") from None
    if not isinstance(config, dict):
        raise InvalidInputError("is not a mapping", where=f"environment variable {CONFIG_DICT_VARIABLE}")
    return config, instance


class Server:
    """Base of all native servers. Subclass one of ResourcesServer, AgentServer, ModelServer, EnvironmentServer, not this.

    ``config`` is the instance's own block, validated by the class that the subclass annotates ``config`` with; ``merged`` is the config
    that this process was given (its slice); ``client`` calls peers. ``setup`` runs in the constructor, ``start`` and ``stop`` in the
    event loop, before the first and after the last request.
    """

    ray_enabled: ClassVar[bool] = False
    sessions: ClassVar[bool] = True
    """Whether answers carry a session cookie: all types but environment servers."""
    prefix_paths: ClassVar[frozenset[str] | None] = frozenset()
    """Paths that a rollout prefix is taken off; None for any path."""

    one_process: ClassVar[bool] = False
    """Whether ``num_workers`` above 1 is a wish for speed that one process meets, and not refused: model servers, whose work is waiting."""

    config: ServerConfig

    def __init__(self, config: ServerConfig, *, merged: Mapping[str, Any], client: ServerClient, settings: Settings | None = None) -> None:
        if config.num_workers is not None and config.num_workers > 1 and not self.one_process:
            raise InvalidInputError(
                f"num_workers is {config.num_workers}, and a native server keeps its sessions in one process",
                where=f"server instance {config.name}",
                hint="Set num_workers to 1 or leave it out.",
            )
        self.config = config
        self.merged = merged
        self.client = client
        self.settings = settings or Settings()
        self.setup()

    @classmethod
    def config_model(cls) -> type[ServerConfig]:
        """The class that ``config`` is annotated with."""
        model = get_type_hints(cls)["config"]
        if not (isinstance(model, type) and issubclass(model, ServerConfig)):
            raise TypeError(f"{cls.__name__}.config must be annotated with a subclass of ServerConfig")
        return model

    @classmethod
    def from_config(
        cls,
        merged: Mapping[str, Any],
        instance: str,
        *,
        environ: Mapping[str, str],
        settings: Settings | None = None,
        http: HttpClient | None = None,
    ) -> Self:
        """The server of one instance. Raises InvalidInputError naming instance and field when its block does not fit the class."""
        settings = settings or Settings.from_environ(environ)
        block = first_block(dict(merged), instance)
        if block is None:
            raise InvalidInputError("the config has no server block of that name", where=f"server instance {instance}")
        try:
            config = cls.config_model().model_validate({**block[2], "name": instance})
        except ValidationError as error:
            found = [f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}" for entry in error.errors(include_url=False)]
            raise InvalidInputError(
                f"its config does not fit {cls.__name__} ({found[0]})", where=f"server instance {instance}", details=tuple(found[1:])
            ) from None
        client = ServerClient(merged, http or HttpClient(PoolOptions.from_config(merged, settings)), environ)
        return cls(config, merged=merged, client=client, settings=settings)

    def setup(self) -> None:
        """For subclasses: read data files, prepare state. Runs once, before anything is served; also in a dry run."""

    async def start(self) -> None:
        """For subclasses: what needs the event loop, before the first request."""

    async def stop(self) -> None:
        """For subclasses: release what ``start`` took."""

    def endpoints(self) -> list[Endpoint]:
        """The routes of this server, in order of precedence."""
        raise NotImplementedError

    def extra_routes(self) -> list[BaseRoute]:
        """For subclasses: Starlette routes beside the endpoints. A server's own ``/healthz`` wins over the built-in one."""
        return []

    @property
    def cookie_name(self) -> str:
        """Name of the session cookie; also how this server calls itself in error texts."""
        return cookie_name(type(self).__name__, self.config.name)

    def app(self) -> Application:
        """The ASGI application."""
        endpoints = self.endpoints()
        # A catch-all tool must hide neither fixed paths nor the health routes, so it comes last.
        fixed = [endpoint for endpoint in endpoints if not endpoint.path_parameters]
        wild = [Route(endpoint.path, endpoint.asgi(), methods=[endpoint.method]) for endpoint in endpoints if endpoint.path_parameters]
        return Application(
            self.cookie_name,
            fixed=fixed,
            routes=[*self.extra_routes(), *health_routes(), *openapi_routes(self.config.name, endpoints), *wild],
            lifespan=self._lifespan,
            cookie=SessionCookie(self.cookie_name, signing_secret(self.cookie_name)) if self.sessions else None,
            prefix_paths=self.prefix_paths,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.stop()
            await self.client.http.close()

    @classmethod
    def run_webserver(cls, environ: Mapping[str, str] | None = None) -> None:
        """Serve until SIGINT or SIGTERM; returns after a clean stop. The last line of every ``app.py``.

        Config comes from NEMO_GYM_CONFIG_DICT and NEMO_GYM_CONFIG_PATH. With ``dry_run: true`` in it the server is built and nothing is
        opened. Ends the process with one line and the error's exit code when the config does not fit.
        """
        from gym_compose.serving.process import serve

        environ = os.environ if environ is None else environ
        try:
            merged, instance = read_config(environ)
            if "dry_run" not in merged:
                raise InvalidInputError("is missing", where=f"{CONFIG_DICT_VARIABLE}: dry_run", hint="A server's config must say it.")
            server = cls.from_config(merged, instance, environ=environ)
            if merged["dry_run"]:
                return
            serve(server)
        except GymComposeError as error:
            print(f"Error: {error}", file=sys.stderr, flush=True)
            for line in error.details:
                print(f"  {line}", file=sys.stderr, flush=True)
            sys.exit(error.exit_code)
