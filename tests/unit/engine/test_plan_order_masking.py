"""The pure parts that both engines share: what to do, in which order to stop, what to mask. And the fake that stands for an engine."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from gym_compose.engine.errors import PortTakenError
from gym_compose.engine.interface import Engine, Observed, ServiceState
from gym_compose.engine.masking import deployment_redactor, directory_redactor
from gym_compose.engine.order import server_types, stop_tiers
from gym_compose.engine.plan import changes, plan_actions
from gym_compose.testing.fake_engine import FakeEngine, sample_deployment, sample_service
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.slice import SecretSlice, SecretValue


def soon() -> Deadline:
    return Deadline.after(30.0, "a test")


def state(service: str = "one", **changes: object) -> ServiceState:
    given: dict[str, object] = {"service": service, "role": "server", "status": "running", "image": "image:1", "slice_sha256": "s1"}
    return ServiceState(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "action", "reason"),
    [
        (None, "create", "does not exist"),
        (state(status="missing"), "create", "does not exist"),
        (state(), "keep", "unchanged"),
        (state(image=None), "keep", "unchanged"),
        (state(image="image:0"), "recreate", "image image:0 is now image:1"),
        (state(slice_sha256="s0"), "recreate", "its configuration changed"),
        (state(slice_sha256=None), "recreate", "its configuration changed"),
        (state(status="exited", exit_code=3), "recreate", "it ended with exit code 3"),
        (state(status="exited", exit_code=137, oom_killed=True), "recreate", "it ended with exit code 137 (out of memory)"),
        (state(status="exited"), "recreate", "it ended"),
        (state(status="created"), "start", "created, never started"),
    ],
)
def test_desired_against_observed(seen: ServiceState | None, action: str, reason: str) -> None:
    (planned,) = plan_actions(sample_deployment(services={"one": "s1"}), Observed("sample", "docker", (seen,) if seen else ()))
    assert (planned.action, planned.reason) == (action, reason)


def test_drivers_are_not_planned_and_strangers_go_last() -> None:
    deployment = sample_deployment(services={"head": "h", "one": "s1", "driver": None})
    seen = Observed("sample", "docker", (state("z_old"), state("a_old"), state("driver", role="driver"), state("one")))
    planned = plan_actions(deployment, seen)
    assert [(item.service, item.action) for item in planned] == [
        ("head", "create"),
        ("one", "keep"),
        ("a_old", "remove"),
        ("z_old", "remove"),
    ]
    assert [item.service for item in changes(planned)] == ["head", "a_old", "z_old"]


def test_who_is_called_last_stops_last(tmp_path: Path) -> None:
    types = {"m": "responses_api_models", "a": "responses_api_agents", "r": "resources_servers", "e": "environment_servers"}
    for service, server_type in types.items():
        (tmp_path / "slices" / service).mkdir(parents=True)
        (tmp_path / "slices" / service / "public.json").write_text(json.dumps({"server_type": server_type}))
    (tmp_path / "slices" / "broken").mkdir()
    (tmp_path / "slices" / "broken" / "public.json").write_text("{")
    states = [state(name) for name in ("m", "broken", "r", "a", "e")] + [state("head", role="head"), state("driver", role="driver")]
    tiers = stop_tiers(states, server_types(tmp_path))
    assert [[item.service for item in tier] for tier in tiers] == [["driver"], ["e"], ["a"], ["broken", "r"], ["m"], ["head"]]
    assert server_types(None) == {}
    assert server_types(tmp_path / "missing") == {}


def test_the_host_relay_stops_with_the_head_after_the_servers_that_use_it() -> None:
    states = [state("host-relay", role="relay"), state("head", role="head"), state("m")]
    assert [[item.service for item in tier] for tier in stop_tiers(states, {"m": "responses_api_models"})] == [
        ["m"],
        ["head", "host-relay"],
    ]


def test_ray_stops_after_the_servers_that_use_it_and_before_the_head() -> None:
    states = [state("ray", role="ray"), state("head", role="head"), state("m"), state("e")]
    types = {"m": "responses_api_models", "e": "environment_servers"}
    assert [[item.service for item in tier] for tier in stop_tiers(states, types)] == [["e"], ["m"], ["ray"], ["head"]]


def test_every_secret_of_a_deployment_and_of_a_directory_is_masked(tmp_path: Path) -> None:
    secret = SecretSlice(
        values=(SecretValue(path=("a",), value="plain-value"), SecretValue(path=("b",), value={"k": ["nested-value", 7, 987654321, True]})),
        environment={"TOKEN": "environment-value"},
        session_key="session-value",
    )
    service = sample_service("one")
    object.__setattr__(service, "secret", secret)
    text = "plain-value nested-value environment-value session-value 987654321 7 True"
    masked = "**** **** **** **** **** 7 True"
    assert deployment_redactor(sample_deployment(services=(service,))).text(text) == masked
    file = tmp_path / "slices" / "one" / "secret.json"
    file.parent.mkdir(parents=True)
    file.write_text(secret.model_dump_json())
    assert directory_redactor(tmp_path).text(text) == masked
    assert directory_redactor(None).text(text) == text
    file.write_text("[1]")
    assert directory_redactor(tmp_path).text(text) == text


def test_the_fake_behaves_as_an_engine(tmp_path: Path) -> None:
    fake = FakeEngine()
    engine: Engine = fake
    deployment = sample_deployment(services={"head": "h", "one": "s1"})
    stop = threading.Event()
    events = engine.events("sample", stop)
    engine.apply(deployment, tmp_path, engine.plan(deployment, engine.observe("sample", soon())), soon(), lambda _: None)
    assert [item.action for item in engine.plan(deployment, engine.observe("sample", soon()))] == ["keep", "keep"]
    fake.say("sample", "one", "first", "second")
    fake.die("sample", "one", 137, oom=True)
    assert [(next(events).kind) for _ in range(4)] == ["start", "start", "oom", "die"]
    assert [line.text for line in engine.logs("sample", ["one"], follow=False, tail=1)] == ["second"]
    assert [line.text for line in engine.logs("sample", [], follow=False, tail=0)] == []
    fake.addresses = {"head": "127.0.0.1:11000", "one": "127.0.0.1:1"}
    assert engine.published("sample", soon()) == {"head": "127.0.0.1:11000"}
    fake.deaf = {"head"}
    report = engine.stop("sample", soon(), lambda _: None)
    assert (report.stopped, report.killed, report.removed) == (("head",), ("head",), 2)
    assert engine.observe("sample", soon()).empty
    fake.errors["apply"] = PortTakenError("taken", port=1)
    with pytest.raises(PortTakenError):
        engine.apply(deployment, tmp_path, (), soon(), lambda _: None)
    stop.set()
    assert fake.calls[:3] == ["events", "observe", "apply"]
