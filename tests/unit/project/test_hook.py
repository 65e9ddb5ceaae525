"""``rollout_collection_driver``: how its function is found, and what it is given."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from gym_compose.project.errors import DriverHookError
from gym_compose.project.hook import RolloutCollectionConfig, addressed, load_hook, run_hook
from gym_compose.project.runs import RunOptions
from gym_compose.wire.settings import Settings

HOOK = """
given = []

async def collect(config, resolved):
    given.append((config, resolved))
    if config.limit == 3:
        raise ZeroDivisionError("mine")

nothing = 1
"""


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with ``my_hooks.py``, which only a hook's own search finds."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "my_hooks.py").write_text(HOOK)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_hooks", "'my_hooks' is not of the form module.path:function"),
        (":collect", "not of the form"),
        ("my_hooks:", "not of the form"),
        ("no_such_hooks:f", "module 'no_such_hooks' cannot be imported"),
        ("my_hooks:missing", "module 'my_hooks' has no 'missing'"),
        ("my_hooks:nothing", "has nothing to call as 'nothing'"),
    ],
)
def test_what_is_wrong_with_the_key_is_said(hooks: Path, path: str, message: str) -> None:
    with pytest.raises(DriverHookError) as raised:
        load_hook(path, hooks)
    assert message in str(raised.value)
    assert raised.value.where == "rollout_collection_driver"


CONFIG: dict[str, Any] = {
    "env": {"environment_servers": {"impl": {"entrypoint": "app.py", "host": "env.gym", "port": 8000, "api_key": "secret"}}},
    "hidden": {"resources_servers": {"impl": {"entrypoint": "app.py", "host": "hidden.gym", "port": 8000}}},
    "head_server": {"host": "head.gym", "port": 11000, "x": 1},
    "require_complete": True,
    "mine": [1],
}
SEEN: dict[str, Any] = {
    "env": {"environment_servers": {"impl": {"entrypoint": "app.py", "host": "127.0.0.1", "port": 4711, "api_key": "****"}}},
    "hidden": {"resources_servers": {"impl": {"entrypoint": "app.py", "host": None, "port": None}}},
}


def test_servers_are_where_the_head_says_and_all_else_is_as_the_config_says() -> None:
    found = addressed(CONFIG, SEEN, "http://127.0.0.1:9000")
    env = found["env"]["environment_servers"]["impl"]
    assert env == {"entrypoint": "app.py", "host": "127.0.0.1", "port": 4711, "api_key": "secret"}
    assert found["hidden"]["resources_servers"]["impl"]["host"] is None
    assert found["head_server"] == {"host": "127.0.0.1", "port": 9000, "x": 1}
    assert found["mine"] == [1]
    assert CONFIG["env"]["environment_servers"]["impl"]["host"] == "env.gym", "the config is not written to"


@pytest.fixture
def head() -> Any:
    """Serves ``SEEN`` as a head server while its ``with`` lasts; in a thread, since a hook has the loop to itself."""

    @contextmanager
    def serving() -> Any:
        loop, ready = asyncio.new_event_loop(), threading.Event()
        urls: list[str] = []

        async def start() -> web.AppRunner:
            async def ok(_request: web.Request) -> web.Response:
                return web.json_response({"status": "ok"})

            async def config(_request: web.Request) -> web.Response:
                return web.json_response(yaml.safe_dump(SEEN))

            app = web.Application()
            app.router.add_get("/readyz", ok)
            app.router.add_get("/global_config_dict_yaml", config)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
            return runner

        runner = loop.run_until_complete(start())
        loop.call_soon(ready.set)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        ready.wait(30)
        try:
            yield urls[0]
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(30)
            loop.close()

    return serving


def test_it_is_awaited_with_the_runs_fields_and_the_whole_config(hooks: Path, head: Any) -> None:
    hook = load_hook("my_hooks:collect", hooks)
    options = RunOptions(input_jsonl_fpath="/in.jsonl", output_jsonl_fpath="/out.jsonl", num_repeats=2)
    with head() as url:
        run_hook(hook, options, CONFIG, run_id="r1", head_url=url, settings=Settings())
    ((config, resolved),) = sys.modules["my_hooks"].given
    assert isinstance(config, RolloutCollectionConfig)
    assert (config.input_jsonl_fpath, config.num_repeats, config.require_complete) == ("/in.jsonl", 2, True)
    assert (config.run_id, config.head_url) == ("r1", url)
    assert resolved["env"]["environment_servers"]["impl"]["port"] == 4711


def test_its_errors_are_its_own(hooks: Path, head: Any) -> None:
    hook = load_hook("my_hooks:collect", hooks)
    options = RunOptions(input_jsonl_fpath="/in.jsonl", output_jsonl_fpath="/out.jsonl", limit=3)
    with head() as url, pytest.raises(ZeroDivisionError, match="mine"):
        run_hook(hook, options, CONFIG, run_id="r1", head_url=url, settings=Settings())
