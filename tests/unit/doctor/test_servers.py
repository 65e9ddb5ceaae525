"""A config tried on an engine in memory: which server passes which round, and that nothing is left."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.compiler.deployment import Deployment
from gym_compose.doctor.check import Check, Findings
from gym_compose.doctor.servers import IMPORT_ONLY, Trial, import_service, parents, trial_name
from gym_compose.engine.errors import ImageBuildError
from gym_compose.engine.interface import BuiltImage, PlannedAction, Report
from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.source import ProjectSource, Selection
from gym_compose.testing.fake_engine import FakeEngine, sample_service
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.head import HealthReport
from gym_compose.wire.settings import Settings

NAMES = ("tool", "agent", "policy_model", "environment")
CONFIG: dict[str, Any] = {
    "tool": {"resources_servers": {"example_single_tool_call": {"entrypoint": "app.py", "domain": "agent"}}},
    "agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "tool"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
    "policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "rule": "first_tool_call", "text": "x"}}},
    "environment": {
        "environment_servers": {"legacy_agent": {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": "agent"}}}
    },
    "server_spinup_timeout_seconds": 1,
}


class ScriptedEngine(FakeEngine):
    """``unbuilt`` images fail by a part of their name; ``imports`` and ``starts`` give the code that a service ends with (None: it runs
    on), 0 and None where nothing is said."""

    def __init__(self) -> None:
        super().__init__()
        self.unbuilt: set[str] = set()
        self.imports: dict[str, int | None] = {}
        self.starts: dict[str, int] = {}
        self.applied: list[tuple[str, ...]] = []
        self.networks: list[str | None] = []

    def build(self, deployment: Deployment, directory: Path, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:
        for image in deployment.images:
            if any(part in image.name for part in self.unbuilt):
                raise ImageBuildError("no such wheel", where=image.name, details=("ERROR: none",))
        return super().build(deployment, directory, deadline, report)

    def apply(self, deployment: Deployment, directory: Path, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
        super().apply(deployment, directory, actions, deadline, report)
        self.applied.append(tuple(service.name for service in deployment.services if service.role != "driver"))
        for service in deployment.services:
            if IMPORT_ONLY in service.command:
                self.networks.append(service.network_mode)
                code = self.imports.get(service.name, 0)
            else:
                code = self.starts.get(service.name)
            if code is not None and service.role != "driver":
                self.die(deployment.project, service.name, code)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def head(engine: ScriptedEngine) -> Iterator[set[str]]:
    """A head server that says that the instances of this set have answered."""
    answered = set(NAMES)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            report = HealthReport(status="starting", phase="servers", elapsed_seconds=0.0, answered=dict.fromkeys(answered, 1.0))
            body = json.dumps(report.model_dump()).encode()
            self.send_response(503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    engine.addresses["head"] = f"127.0.0.1:{server.server_port}"
    yield answered
    server.shutdown()
    server.server_close()
    thread.join()


def tried(cwd: Path, engine: ScriptedEngine, **changes: Any) -> dict[str, Check]:
    (cwd / "small.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}))
    settings = Settings(probe_interval_seconds=0.01, doctor_import_seconds=0.05, doctor_parallel=3)
    selection = Selection(("+config_paths=[small.yaml]",), cwd, {}, name=trial_name("small"))
    source = ProjectSource.load(selection, target="docker", settings=settings)
    directory = ProjectDirectory.under(cwd, source.name)
    findings = Findings(lambda _: None)
    Trial(engine, source, directory, settings, lambda _: None).run(findings)
    assert not directory.path.exists()
    assert engine.calls[-1] == "stop"
    return {check.name: check for check in findings.checks}


def names(found: dict[str, Check], status: str) -> set[str]:
    return {name for name, check in found.items() if check.status == status}


def test_each_server_passes_three_rounds(tmp_path: Path, engine: ScriptedEngine, head: set[str]) -> None:
    found = tried(tmp_path, engine)
    assert names(found, "ok") == {"head: image"} | {f"{name}: {what}" for name in NAMES for what in ("image", "import", "root")}
    assert len(found) == 13
    assert [len(services) for services in engine.applied] == [3, 1, 5]  # imported a few at a time, then all with their head
    assert engine.networks == ["none"] * 4
    assert "app.py imports" in found["tool: import"].said


def test_a_server_that_fails_a_round_is_left_out_of_the_next(tmp_path: Path, engine: ScriptedEngine, head: set[str]) -> None:
    engine.unbuilt.add("scripted-model")
    engine.imports["tool"] = 1
    engine.starts["agent"] = 3
    found = tried(tmp_path, engine)
    assert names(found, "fail") == {"policy_model: image", "tool: import", "agent: root"}
    assert found["policy_model: image"].details == ("ERROR: none",)
    assert found["policy_model: image"].exit_code == 5
    assert "exit code 1" in found["tool: import"].said
    assert "exit code 3" in found["agent: root"].said
    assert found["environment: root"].status == "ok"
    assert not {"policy_model: import", "policy_model: root", "tool: root"} & set(found)


def test_a_module_that_is_not_imported_in_time_and_a_root_that_does_not_answer(
    tmp_path: Path, engine: ScriptedEngine, head: set[str]
) -> None:
    engine.imports["tool"] = None
    head.discard("agent")
    found = tried(tmp_path, engine)
    assert names(found, "fail") == {"tool: import", "agent: root"}
    assert "not imported after" in found["tool: import"].said
    assert "no answer in time" in found["agent: root"].said


def test_without_the_heads_image_nothing_else_is_tried(tmp_path: Path, engine: ScriptedEngine) -> None:
    engine.unbuilt.add("controller")
    assert set(tried(tmp_path, engine)) == {"head: image"}
    assert engine.applied == []


def test_a_head_that_has_no_address_is_told(tmp_path: Path, engine: ScriptedEngine) -> None:
    engine.starts["head"] = 2
    found = tried(tmp_path, engine)
    assert "exit code 2" in found["head: root"].said


def test_an_interrupt_leaves_nothing(tmp_path: Path, engine: ScriptedEngine) -> None:
    engine.errors["apply"] = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        tried(tmp_path, engine)
    assert engine.calls[-1] == "stop"
    assert not (tmp_path / ".gym" / "small-doctor").exists()


def test_a_service_that_only_imports_has_no_network_and_no_port() -> None:
    changed = import_service(sample_service("x", ("python", "-m", "gym_compose.serving.launch")))
    assert changed.command[-1] == IMPORT_ONLY
    assert (changed.network_mode, changed.attachments, changed.ports) == ("none", (), ())


def test_the_images_that_one_is_built_from() -> None:
    from gym_compose.compiler.deployment import Image

    images = [Image(name, name, "server", (), depends_on=below) for name, below in (("a", ()), ("b", ("a",)), ("c", ("a",)), ("d", ("b",)))]
    assert [image.name for image in parents(images, "d")] == ["a", "b", "d"]
    assert parents(images, "external:1") == ()


def test_the_name_of_a_trial_is_one_that_compose_takes() -> None:
    assert trial_name("quickstart-0a1b2c") == "quickstart-0a1b2c-doctor"
    assert len(trial_name("x" * 63)) == 63
