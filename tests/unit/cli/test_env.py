"""``gym env``: start, status, resolve, validate, prefetch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.cli import env
from gym_compose.cli.translate import Invocation
from gym_compose.config import ConfigError
from gym_compose.wire.errors import GymComposeError, NotReadyError

Invoke = Callable[..., Invocation]

CONFIG = """
policy_api_key: ${oc.env:POLICY_KEY}
policy_base_url: http://user:pw@model/v1
db: {password: [hunter22, swordfish]}
copied: key ${policy_api_key}
limits: {max_output_tokens: 9}
plain: ${oc.env:NAME}
policy_model:
  responses_api_models:
    openai_model: {entrypoint: app.py, openai_base_url: '${policy_base_url}', openai_api_key: '${policy_api_key}', openai_model: m}
"""
ENVIRON = {"POLICY_KEY": "sk-very-secret", "NAME": "ordinary"}
SECRETS = ("sk-very-secret", "user:pw", "hunter22", "swordfish")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return file


class TestResolve:
    def test_interpolations_are_resolved_and_every_secret_is_hidden(self, config: Path, invoke: Invoke, captured: Any) -> None:
        assert env.resolve(invoke("env resolve --config c.yaml ++extra=1", ENVIRON), captured.console) == 0
        shown = yaml.safe_load(captured.stdout)
        assert shown["plain"] == "ordinary"
        assert shown["extra"] == 1
        assert shown["policy_api_key"] == shown["policy_base_url"] == shown["copied"] == "****" or shown["copied"] == "key ****"
        assert shown["db"] == {"password": ["****", "****"]}
        assert shown["limits"] == {"max_output_tokens": "****"}
        block = shown["policy_model"]["responses_api_models"]["openai_model"]
        assert (block["openai_api_key"], block["openai_base_url"], block["openai_model"]) == ("****", "****", "m")
        assert 10001 <= block["port"] <= 20000
        for secret in SECRETS:
            assert secret not in captured.stdout + captured.stderr

    def test_json(self, config: Path, invoke: Invoke, captured: Any) -> None:
        assert env.resolve(invoke("env resolve --config c.yaml --json", ENVIRON), captured.console) == 0
        assert json.loads(captured.stdout)["plain"] == "ordinary"
        assert not any(secret in captured.stdout for secret in SECRETS)

    def test_a_broken_interpolation_anywhere_is_an_error(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        (tmp_path / "b.yaml").write_text("a: {b: {c: '${nope}'}}\n")
        with pytest.raises(ConfigError, match="nope"):
            env.resolve(invoke("env resolve --config b.yaml"), captured.console)

    @pytest.mark.parametrize(
        ("key", "overrides", "lines"),
        [
            ("plain", "", ["* {file}:7: '${oc.env:NAME}'"]),
            ("plain", "++plain=x", ["  {file}:7: '${oc.env:NAME}'", "* override ++plain: 'x'"]),
            ("policy_api_key", "++policy_api_key=sk-other-secret", ["  {file}:2: '****'", "* override ++policy_api_key: '****'"]),
            ("db", "", ["* {file}:4: {'password': ['****', '****']}"]),
            ("policy_base_url", "", ["* {file}:3: '****'"]),
        ],
    )
    def test_explain_names_the_writers_and_hides_secrets(
        self, config: Path, invoke: Invoke, captured: Any, key: str, overrides: str, lines: list[str]
    ) -> None:
        assert env.resolve(invoke(f"env resolve --config c.yaml --explain {key} {overrides}", ENVIRON), captured.console) == 0
        assert captured.stdout.splitlines() == [line.replace("{file}", str(config)) for line in lines]

    def test_explain_as_json(self, config: Path, invoke: Invoke, captured: Any) -> None:
        assert (
            env.resolve(
                invoke("env resolve --config c.yaml --explain db.password --json ++db.password=a-new-one", ENVIRON), captured.console
            )
            == 0
        )
        shown = json.loads(captured.stdout)
        assert (shown["key"], shown["present"], shown["value"], shown["error"]) == ("db.password", True, "****", None)
        assert [setting["last"] for setting in shown["settings"]] == [False, True]
        assert "a-new-one" not in captured.stdout
        assert "hunter22" not in captured.stdout

    def test_explain_of_a_key_that_nobody_sets(self, config: Path, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(GymComposeError, match="nothing sets 'nope'"):
            env.resolve(invoke("env resolve --config c.yaml --explain nope", ENVIRON), captured.console)


class TestStart:
    def test_the_last_line_is_nemo_gyms(self, invoke: Invoke, captured: Any, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from gym_compose.project.wait import DeathWatch

        def interrupted(self: Any, seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(DeathWatch, "next_death", interrupted)
        assert env.start(invoke("env start ++a=1"), captured.console) == 0
        assert captured.stdout.splitlines()[-1] == "NeMo Gym finished!"
        assert set(captured.stdout.splitlines()) <= {"(head) ready", "(math) hello", "NeMo Gym finished!"}
        assert [call for call in project.calls if not call.startswith("logs")] == ["up", "down"]

    def test_it_is_printed_after_a_failed_start_too(self, invoke: Invoke, captured: Any, project: Any) -> None:
        project.failure = NotReadyError("too late")
        with pytest.raises(NotReadyError):
            env.start(invoke("env start ++a=1"), captured.console)
        assert captured.stdout == "NeMo Gym finished!\n"


def test_prefetch_makes_the_images(invoke: Invoke, captured: Any, project: Any) -> None:
    assert env.prefetch(invoke("env prefetch ++a=1"), captured.console) == 0
    assert project.calls == ["build"]


class TestStatus:
    def test_nothing_runs(self, invoke: Invoke, captured: Any, unused_tcp_port: int) -> None:
        assert env.status(invoke(f"env status ++head_server.port={unused_tcp_port}"), captured.console) == 0
        assert captured.stdout == "No servers found.\n"
        assert captured.stderr.startswith(f"Warning: http://127.0.0.1:{unused_tcp_port}: no head server answers")

    def test_nothing_runs_as_json(self, invoke: Invoke, captured: Any, unused_tcp_port: int) -> None:
        assert env.status(invoke(f"env status --json ++head_server.port={unused_tcp_port}"), captured.console) == 0
        assert json.loads(captured.stdout) == []
