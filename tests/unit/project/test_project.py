from __future__ import annotations

import functools
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gym_compose.compiler.errors import HostFileError
from gym_compose.engine.interface import LogLine
from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.errors import HeadPortTakenError, ProjectNotFoundError
from gym_compose.project.options import UNWRITTEN_KEY
from gym_compose.project.ports import settled_head_port
from gym_compose.project.project import Project
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError, UsageError
from gym_compose.wire.settings import Settings

Load = Callable[..., Project]
SECRET = "marker-secret-4711"


def tree(directory: Path) -> dict[str, tuple[bytes, int]]:
    files = (file for file in sorted(directory.rglob("*")) if file.is_file() and file.name != ".lock")
    return {str(file.relative_to(directory)): (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) for file in files}


def test_loading_writes_nothing_and_asks_no_engine(load: Load, engine: Any, cwd: Path) -> None:
    before = sorted(cwd.rglob("*"))
    project = load()
    assert project.name.startswith("four-")
    assert [service.name for service in project.deployment.services] == ["head", "tool", "agent", "policy", "environment", "driver"]
    assert project.deployment.service("tool").secret.session_key == UNWRITTEN_KEY  # type: ignore[union-attr]
    assert engine.calls == []
    assert sorted(cwd.rglob("*")) == before


def test_the_name_stays_whatever_the_other_overrides_say_and_p_wins(load: Load) -> None:
    assert load().name == load("++policy_model_name=other").name
    assert load(name="mine").name == "mine"
    with pytest.raises(UsageError, match="Mine"):
        load(name="Mine")


def test_writing_twice_gives_the_same_bytes_and_a_real_session_key(load: Load) -> None:
    project = load()
    project.write()
    key = project.deployment.service("tool").secret.session_key  # type: ignore[union-attr]
    assert key == project.directory.read_session_key()
    assert key != UNWRITTEN_KEY
    first = tree(project.directory.path)
    load().write()
    assert tree(project.directory.path) == first
    assert {"compose.yaml", "build.yaml", "plan.json", "state.json", "session.key", "head/head.json"} <= set(first)


def test_the_secret_stands_in_the_slice_of_the_one_server_that_needs_it(load: Load) -> None:
    project = load()
    project.write()
    holders = [name for name, (data, _) in tree(project.directory.path).items() if SECRET.encode() in data]
    assert holders == ["slices/policy/secret.json"]
    assert tree(project.directory.path)["slices/policy/secret.json"][1] == 0o400


def test_all_that_is_printed_is_masked_also_secrets_that_no_slice_holds(load: Load, engine: Any) -> None:
    project = load()
    assert project.redact(f"key {SECRET}, other another-{SECRET}") == "key ****, other ****"
    engine.log["policy"] = [f"sent {SECRET}"]
    assert list(project.logs(["policy"])) == [LogLine("policy", "sent ****")]
    project.write()
    opened = Project.open(project.directory, engine=engine, environ={}, settings=Settings())
    assert opened.redact(f"key {SECRET}") == "key ****"


def test_compose_text_is_what_is_written(load: Load) -> None:
    project = load()
    project.write()
    assert project.compose_text() == project.directory.compose_file.read_text()
    assert yaml.safe_load(project.compose_text())["name"] == project.name


def test_a_project_is_found_again_without_its_config(load: Load, engine: Any, cwd: Path) -> None:
    load(name="one").write()
    options = {"engine": engine, "environ": {}, "settings": Settings()}
    found = Project.find(cwd, None, **options)
    assert found.name == "one"
    assert not found.has_config
    with pytest.raises(InvalidInputError, match="config"):
        found.deployment  # noqa: B018
    assert found.observe(Deadline.after(1)).empty
    with pytest.raises(ProjectNotFoundError, match="one"):
        Project.find(cwd, "two", **options)


def test_a_loaded_project_shows_the_port_that_its_head_has(load: Load) -> None:
    project = load()
    assert project.deployment.head_port == 11000
    project.write()
    project.remember("127.0.0.1:4242")
    assert load().deployment.head_port == 4242
    assert load("++head_server.port=4300").deployment.head_port == 4300


@pytest.fixture
def taken() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_the_config_names_and_somebody_has_ends_up_before_anything_starts(
    load: Load, engine: Any, head: Any, taken: int
) -> None:
    head()
    with pytest.raises(HeadPortTakenError, match=str(taken)):
        load(f"++head_server.port={taken}").up(Deadline.after(5), lambda _: None)
    assert "apply" not in engine.calls


def test_a_default_port_that_somebody_has_gives_way_to_a_free_one(load: Load, head: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    head()
    played = functools.partial(settled_head_port, free=lambda _: False, choose=lambda: 4999)
    monkeypatch.setattr("gym_compose.project.project.settled_head_port", played)
    project = load()
    project.up(Deadline.after(5), lambda _: None)
    assert project.deployment.head_port == 4999
    document = yaml.safe_load(project.directory.compose_file.read_text())
    assert document["services"]["head"]["ports"][0]["published"] == "4999"


def test_a_port_in_a_config_file_is_explicit(load: Load, cwd: Path) -> None:
    project = load()
    assert not project._loaded().source.head_port.explicit
    with (cwd / "four.yaml").open("a") as file:
        file.write("head_server: {port: 11000}\n")
    assert load()._loaded().source.head_port.explicit


def test_processes_keep_their_ports_from_one_start_to_the_next(load: Load, engine: Any, head: Any, cwd: Path) -> None:
    engine.name = "process"
    head()
    project = load()
    project.up(Deadline.after(5), lambda _: None)
    ports = {instance.name: instance.port for instance in project.config.instances}
    state = project.state()
    assert state is not None
    assert state.ports == ports
    again = load()
    assert {instance.name: instance.port for instance in again.config.instances} == ports
    again.up(Deadline.after(5), lambda _: None)
    again.down(Deadline.after(5), lambda _: None)
    fresh = load()
    assert {instance.name: instance.port for instance in fresh.config.instances} != ports


def test_a_new_server_between_old_ones_moves_none_of_them(load: Load, engine: Any, head: Any, cwd: Path) -> None:
    engine.name = "process"
    head()
    project = load()
    project.up(Deadline.after(5), lambda _: None)
    ports = {instance.name: instance.port for instance in project.config.instances}
    text = (cwd / "four.yaml").read_text()
    (cwd / "four.yaml").write_text(
        "first:\n  resources_servers:\n    example_single_tool_call: {entrypoint: app.py, domain: agent}\n" + text
    )
    now = {instance.name: instance.port for instance in load().config.instances}
    assert {name: port for name, port in now.items() if name != "first"} == ports
    assert now["first"] not in ports.values()


def test_kept_ports_are_let_go_when_nothing_runs_any_more(load: Load, engine: Any, head: Any) -> None:
    engine.name = "process"
    head()
    project = load()
    project.up(Deadline.after(5), lambda _: None)
    engine.states.clear()  # the machine was restarted
    again = load()
    kept = {instance.port for instance in again.config.instances}
    again.up(Deadline.after(5), lambda _: None)
    assert {instance.port for instance in again.config.instances} != kept


def test_a_state_file_of_another_make_is_an_error_and_no_traceback(load: Load) -> None:
    project = load()
    project.write()
    project.directory.state_file.write_text("{}")
    with pytest.raises(InvalidInputError, match=r"state\.json"):
        load()


def test_the_plan_holds_the_inputs_of_every_image_and_no_secret(load: Load) -> None:
    project = load()
    project.write()
    plan = orjson.loads(project.directory.plan_file.read_bytes())
    assert {image["kind"] for image in plan["images"]} >= {"base", "native", "controller", "server"}
    assert all(image["inputs"] for image in plan["images"])
    assert SECRET not in project.directory.plan_file.read_text()


def test_the_directory_does_not_depend_on_the_rest_of_the_machine(load: Load, cwd: Path, tmp_path: Path) -> None:
    project = load()
    project.write()
    shutil.rmtree(project.directory.path)
    assert not ProjectDirectory.under(cwd, project.name).exists
    load().write()
    assert os.stat(project.directory.path).st_mode & 0o077 == 0


def test_logs_of_an_opened_project_take_instance_names_and_refuse_others(load: Load, engine: Any, settings: Settings) -> None:
    project = load()
    project.write()
    engine.log["policy"] = ["hello"]
    document = orjson.loads(project.directory.plan_file.read_bytes())
    for entry in document["services"]:
        if entry["service"] == "policy":
            entry["instance"] = "the policy"
    project.directory.plan_file.write_bytes(orjson.dumps(document))
    opened = Project.open(project.directory, engine=engine, environ={}, settings=settings)
    assert list(opened.logs(["the policy"])) == [LogLine("policy", "hello")]
    with pytest.raises(InvalidInputError, match=r"no service 'nosuch'.*policy"):
        list(opened.logs(["nosuch"]))
    project.directory.plan_file.unlink()
    assert opened.service_of("nosuch") == "nosuch", "without a plan the engine alone knows"


def test_a_file_that_is_not_there_names_the_script_that_makes_it(load: Load, cwd: Path) -> None:
    data = "resources_servers/own/data"
    (cwd / "resources_servers" / "own").mkdir(parents=True)
    script = cwd / "resources_servers" / "own" / "prepare.py"
    script.write_text("")
    (cwd / "scripted.yaml").write_text(
        "policy: {responses_api_models: {scripted_model: {entrypoint: app.py, rule: answers, "
        f"answers: {{jsonl: {data}/answers.jsonl, prompt_key: p, answer_key: a}}, datasets: [{{name: x, type: train, license: MIT, "
        f"jsonl_fpath: {data}/x.jsonl, prepare_script: resources_servers/own/prepare.py}}]}}}}}}\n"
    )
    with pytest.raises(HostFileError, match=r"answers\.jsonl") as caught:
        load("+config_paths=[scripted.yaml]")
    assert str(script) in str(caught.value)
