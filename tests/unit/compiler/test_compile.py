from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler import CompileError, Deployment, compile, plan_rows, render
from gym_compose.config.model import ClassFlags, GymConfig, ServerManifest
from gym_compose.wire.errors import InvalidInputError


@pytest.fixture
def compiled(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(sources: dict[str, Any] | None = None, **options: Any) -> Deployment:
        config = make_config(four)
        return compile(config, make_sources(config, **(sources or {})), make_options(**options))

    return make


def networks(deployment: Deployment) -> dict[str, tuple[str, ...]]:
    return {service.name: tuple(item.network for item in service.attachments) for service in deployment.services}


def test_services_stand_in_start_order_head_first_driver_last(compiled: Any) -> None:
    deployment = compiled()
    assert [service.name for service in deployment.services] == ["head", "math", "math_agent", "policy_model", "math_environment", "driver"]
    assert [service.role for service in deployment.services] == ["head", "server", "server", "server", "server", "driver"]


def test_who_sits_on_which_network(compiled: Any) -> None:
    assert networks(compiled()) == {
        "head": ("servers", "front", "egress"),  # it probes the model endpoint
        "math": ("servers",),
        "math_agent": ("servers",),
        "policy_model": ("servers", "egress"),
        "math_environment": ("servers",),
        "driver": ("servers",),
    }


def test_egress_is_not_even_made_where_nobody_needs_it(four: Any, compiled: Any) -> None:
    del four["policy_model"]["responses_api_models"]["openai_model"]["openai_base_url"]
    deployment = compiled({"openai_model": {"manifest": ServerManifest(egress=False)}})
    assert [network.name for network in deployment.networks] == ["servers", "front"]
    assert deployment.networks[0].internal
    assert dict(deployment.networks[0].driver_opts) == {"com.docker.network.bridge.inhibit_ipv4": "true"}


@pytest.mark.parametrize(
    ("extension", "manifest", "base_url", "expected"),
    [
        (None, None, None, True),
        (None, False, None, False),
        (False, None, None, False),
        (True, False, None, True),
        (None, False, "http://localhost:1/v1", True),
        (False, None, "http://localhost:1/v1", False),
    ],
)
def test_egress_of_a_model_server(
    extension: bool | None, manifest: bool | None, base_url: str | None, expected: bool, four: Any, compiled: Any
) -> None:
    block = four["policy_model"]["responses_api_models"]["openai_model"]
    block["openai_base_url"] = base_url or block["openai_base_url"]
    if extension is not None:
        four["compose"] = {"servers": {"policy_model": {"egress": extension}}}
    service = compiled({"openai_model": {"manifest": ServerManifest(egress=manifest)}}).service("policy_model")
    assert any(item.network == "egress" for item in service.attachments) is expected
    assert service.closed is not expected
    assert bool(service.extra_hosts) is (expected and base_url is not None)


def test_the_alias_is_on_the_servers_network_alone(compiled: Any) -> None:
    for service in compiled().services:
        for attachment in service.attachments:
            assert attachment.aliases == () or attachment.network == "servers"
    assert compiled().service("head").attachments[0].aliases == ("head.gym",)


def test_ports_for_another_host_are_a_warning_that_names_address_and_servers(four: Any, compiled: Any) -> None:
    four["compose"] = {"publish": {"servers": ["environment"], "address": "10.0.0.5"}}
    deployment = compiled()
    ports = {service.name: service.ports for service in deployment.services if service.ports}
    assert [port.host_address for port in ports["math_environment"]] == ["10.0.0.5"]
    assert [port.host_address for port in ports["head"]] == ["127.0.0.1", "10.0.0.5"], "commands on this host find it at loopback"
    (warning,) = [text for text in deployment.warnings if "published on" in text]
    assert warning.startswith("published on 10.0.0.5: head, math_environment. Whoever reaches this address can call them")


def test_ports_on_loopback_alone_are_no_warning(four: Any, compiled: Any) -> None:
    four["compose"] = {"publish": ["environment"]}
    assert not any("published on" in text for text in compiled().warnings)


@pytest.mark.parametrize("how", ["option", "extension", "by name"])
def test_a_published_environment_server_binds_all_addresses_in_its_own_slice_only(how: str, four: Any, compiled: Any) -> None:
    options: dict[str, Any] = {}
    if how == "option":
        options["publish"] = ("environment",)
    else:
        four["compose"] = {"publish": ["environment" if how == "extension" else "math_environment"]}
    four["math"]["resources_servers"]["math"]["environment"] = {"type": "environment_servers", "name": "math_environment"}
    deployment = compiled(**options)
    service = deployment.service("math_environment")
    assert [item.network for item in service.attachments] == ["servers", "front"]
    assert [(port.host_address, port.host_port, port.container_port) for port in service.ports] == [("127.0.0.1", None, 8000)]

    def host(config: Any) -> str:
        found: str = config["math_environment"]["environment_servers"]["legacy_agent"]["host"]
        return found

    assert service.slice is not None
    assert host(service.slice.config) == "0.0.0.0"
    peer = deployment.service("math").slice
    assert peer is not None
    assert host(peer.config) == "math-environment.gym"
    assert host(deployment.head.config) == "math-environment.gym"


def test_everyone_runs_as_the_caller_or_as_the_service_account(compiled: Any) -> None:
    assert {service.user for service in compiled().services} == {"1000:1000"}
    assert {service.user for service in compiled(run_as=(0, 0)).services} == {"10001:10001"}
    assert {service.user for service in compiled(run_as=None).services} == {"10001:10001"}


def test_limits_come_from_the_server_then_the_defaults_then_the_fragment(four: Any, compiled: Any) -> None:
    four["compose"] = {"defaults": {"memory": "1g"}, "servers": {"math": {"memory": "3g", "cpus": 2, "gpus": 1, "writable": True}}}
    deployment = compiled()
    math, agent, head = (deployment.service(name) for name in ("math", "math_agent", "head"))
    assert (math.memory, math.cpus, math.gpus, math.writable) == ("3g", "2.0", 1, True)
    assert (agent.memory, agent.cpus, agent.pids_limit) == ("1g", "1.0", 512)
    assert head.memory == "512m"


def test_an_image_of_ones_own_needs_no_directory_and_keeps_its_command(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["compose"] = {"servers": {"math": {"image": "registry.example/judge:3"}}}
    config = make_config(four)
    sources = make_sources(config)
    del sources["resources_servers", "math"]
    deployment = compile(config, sources, make_options())
    service = deployment.service("math")
    assert (service.image, service.command, service.pull) == ("registry.example/judge:3", (), True)
    assert [(image.name, image.kind) for image in deployment.images if image.kind == "external"] == [
        ("registry.example/judge:3", "external")
    ]
    assert all(item.secret.session_key is None for item in deployment.services if item.secret)  # not all servers are native any more


def test_the_session_key_reaches_every_server_of_a_native_deployment(compiled: Any) -> None:
    assert {item.secret.session_key for item in compiled().services if item.secret} == {"MARKER-SESSION-KEY"}


@pytest.mark.parametrize(
    ("sources", "change", "says"),
    [
        ({"math": {"runtime": "nemo-gym"}}, {}, "no NeMo Gym is in the search roots"),
        ({}, {"num_workers": 2}, "num_workers"),
        ({}, {"entrypoint": "/abs/app.py"}, "absolute"),
    ],
)
def test_a_server_that_cannot_run_is_named_with_what_to_do(
    sources: dict[str, Any], change: dict[str, Any], says: str, four: Any, compiled: Any
) -> None:
    four["math"]["resources_servers"]["math"].update(change)
    with pytest.raises(CompileError, match="instance math") as caught:
        compiled(sources)
    assert says in str(caught.value)
    assert caught.value.hint
    assert isinstance(caught.value, InvalidInputError)


def test_workers_are_fine_where_the_entry_point_has_the_stanza(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["num_workers"] = 2
    assert compiled({"math": {"flags": ClassFlags(multi_worker=True)}}).service("math")
    per_entrypoint = {"entrypoint_flags": (("other.py", ClassFlags()), ("app.py", ClassFlags(multi_worker=True)))}
    assert compiled({"math": per_entrypoint}).service("math")


def test_an_implementation_without_a_directory_is_an_error(four: Any, make_config: Any, make_options: Any) -> None:
    with pytest.raises(CompileError, match=r"instance math: there is no directory resources_servers/math") as caught:
        compile(make_config(four), {}, make_options())
    assert "--search-dir" in str(caught.value)


def test_two_server_types_in_one_instance_are_an_error(four: Any, compiled: Any) -> None:
    four["math"]["responses_api_agents"] = {"x": {"entrypoint": "app.py"}}
    with pytest.raises(CompileError, match=r"resources_servers, responses_api_agents"):
        compiled()


def test_manifest_files_are_mounted_read_only_and_rewritten_in_the_own_slice(four: Any, compiled: Any, host_file: Any) -> None:
    four["math"]["resources_servers"]["math"]["answers"] = {"jsonl": "d/a.jsonl"}
    four["math"]["resources_servers"]["math"]["more"] = ["d/b.jsonl", "d/c.jsonl"]
    files = {f"d/{name}.jsonl": host_file(f"/host/{name}.jsonl", name) for name in "abc"}
    sources = {"math": {"manifest": ServerManifest(files=("answers.jsonl", "more", "absent"))}}
    deployment = compiled(sources, files=files)
    service = deployment.service("math")
    assert [(mount.source, mount.target, mount.read_only) for mount in service.mounts] == [
        ("/host/a.jsonl", "/run/gym/files/0/a.jsonl", True),
        ("/host/b.jsonl", "/run/gym/files/1/b.jsonl", True),
        ("/host/c.jsonl", "/run/gym/files/2/c.jsonl", True),
    ]
    assert service.slice is not None
    block = service.slice.config["math"]["resources_servers"]["math"]
    assert block["answers"] == {"jsonl": "/run/gym/files/0/a.jsonl"}
    assert block["more"] == ["/run/gym/files/1/b.jsonl", "/run/gym/files/2/c.jsonl"]
    peer = deployment.service("math_agent").slice
    assert peer is not None
    assert peer.config["math"]["resources_servers"]["math"]["answers"] == {"jsonl": "d/a.jsonl"}
    process = compiled(sources, files=files, target="process").service("math")
    assert process.mounts == ()
    assert process.slice is not None
    assert process.slice.config["math"]["resources_servers"]["math"]["answers"] == {"jsonl": "/host/a.jsonl"}


def test_a_missing_file_names_instance_field_and_path(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["answers"] = {"jsonl": "d/a.jsonl"}
    with pytest.raises(CompileError, match=r"math\.answers\.jsonl: 'd/a\.jsonl'"):
        compiled({"math": {"manifest": ServerManifest(files=("answers.jsonl",))}})


def test_the_users_mounts_follow_the_manifests(four: Any, compiled: Any, host_file: Any) -> None:
    four["compose"] = {"servers": {"math": {"mounts": [{"source": "cache", "target": "/cache", "read_only": False}]}}}
    (mount,) = compiled(files={"cache": host_file("/host/cache", "")}).service("math").mounts
    assert (mount.source, mount.target, mount.read_only) == ("/host/cache", "/cache", False)


def test_datasets_are_listed_with_their_digest_where_they_are_on_disk(four: Any, compiled: Any, host_file: Any) -> None:
    four["math"]["resources_servers"]["math"]["datasets"] = [
        {"name": "a", "type": "example", "jsonl_fpath": "a.jsonl"},
        {"name": "b", "type": "train", "jsonl_fpath": "b.jsonl"},
    ]
    found = compiled(files={"a.jsonl": host_file("/host/a.jsonl", "x")}).datasets
    assert [(item.instance, item.name, item.path, item.sha256 is None) for item in found] == [
        ("math", "a", "/host/a.jsonl", False),
        ("math", "b", "b.jsonl", True),
    ]


def test_the_process_target_is_the_same_deployment_on_loopback(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["port"] = 12345
    deployment = compiled(target="process", head_port=11000)
    math = deployment.service("math")
    assert (math.host, math.port, math.image, math.attachments, math.user) == ("127.0.0.1", 12345, "", (), None)
    assert math.command == (
        "/usr/bin/python3", "-m", "gym_compose.serving.launch",
        "--slice", "/work/.gym/p/slices/math/public.json", "--secret", "/work/.gym/p/slices/math/secret.json",
    )  # fmt: skip
    assert math.slice is not None
    assert (math.slice.server_dir, math.slice.python_path) == ("/src/resources_servers/math", ("/src",))
    assert deployment.head.listen.port == 11000
    assert deployment.head.listen_published is None
    assert [service.name for service in deployment.services] == ["head", "math", "math_agent", "policy_model", "math_environment"]
    assert deployment.networks == ()


def test_a_closed_server_that_names_an_address_outside_gets_a_note(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["judge_base_url"] = "https://judge.example/v1?key=MARKER"
    notes = [text for instance, text in compiled().notes if instance == "math"]
    assert len(notes) == 1
    assert "judge_base_url" in notes[0]
    assert "MARKER" not in notes[0]


def test_a_reference_to_nothing_that_the_parser_lets_through_gets_a_note(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["helper"] = {"type": "resources_servers", "name": "gone"}
    assert ("math", "helper references 'gone', which is no instance of this config") in compiled().notes


def test_references_may_hold_a_cycle_and_order_nothing(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["agent"] = {"type": "responses_api_agents", "name": "math_agent"}
    rows = {row.instance: row for row in plan_rows(compiled())}
    assert rows["math"].references == ("math_agent",)
    assert rows["math_agent"].references == ("math", "policy_model")
    assert compiled().service("math").depends_on == ()


def test_a_hundred_compiles_give_the_same_bytes(compiled: Any, make_options: Any) -> None:
    assets = make_options().assets
    first = render(compiled(), assets, "/d", ca_bundle="/ca")
    assert all(render(compiled(), assets, "/d", ca_bundle="/ca") == first for _ in range(99))


def test_another_hash_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    script = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); import conftest as c\n"
        "from gym_compose.compiler import compile, render\n"
        "four = c.four_servers(); four['hf_token'] = 'x'\n"
        "four['math']['resources_servers']['math']['agent'] = {'type': 'responses_api_agents', 'name': 'math_agent'}\n"
        "four['compose'] = {'servers': {'math': {'secrets': ['hf_token'], 'environment': {'B': 'x', 'A': 'y'}}}}\n"
        "config = c.config_of(four, [*c.FOUR_SECRETS, ('hf_token',)])\n"
        "options = c.options_of(publish=('environment',))\n"
        "files = render(compile(config, c.sources_of(config, math={'requirement_lines': ('b', 'a')}), options), options.assets, '/d')\n"
        "print(hashlib.sha256(repr(files).encode()).hexdigest())\n"
    )
    here = Path(__file__).resolve().parent
    digests = {
        subprocess.run(
            [sys.executable, "-c", script, str(here)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(here.parents[2])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


def test_compile_leaves_its_input_alone(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    config: GymConfig = make_config(four)
    before = repr(config)
    compile(config, make_sources(config), make_options())
    assert repr(config) == before


def test_compile_and_render_touch_nothing_outside_their_arguments(
    four: Any, make_config: Any, make_sources: Any, make_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    four["math"]["resources_servers"]["math"]["judge_base_url"] = "http://localhost:1/v1"
    config, options = make_config(four), make_options()
    sources = make_sources(config, math={"requirement_lines": ("numpy",)})
    with monkeypatch.context() as patch:
        for name in (
            "builtins.open", "os.getenv", "os.stat", "os.urandom", "os.getuid", "time.time", "random.random",
            "socket.socket", "subprocess.Popen",
        ):  # fmt: skip
            patch.setattr(name, _forbidden)
        files = render(compile(config, sources, options), options.assets, options.directory)
    assert files


def _forbidden(*_: object, **__: object) -> None:
    raise AssertionError("the compiler looked at the world")


class TestHostRelay:
    @pytest.fixture
    def local(self, four: Any) -> Any:
        four["policy_model"]["responses_api_models"]["openai_model"]["openai_base_url"] = [
            "http://127.0.0.1:9001/v1",
            "https://localhost/v1",
        ]
        return four

    def test_a_loopback_endpoint_gets_a_relay_in_the_hosts_network(
        self, local: Any, make_config: Any, make_sources: Any, make_options: Any
    ) -> None:
        config = make_config(local)
        deployment = compile(config, make_sources(config), make_options(loopback_ports=frozenset({9001, 443, 7})))
        relay = deployment.service("host-relay")
        assert (relay.role, relay.network_mode, relay.attachments, relay.user) == ("relay", "host", (), "1000:1000")
        assert relay.command[-6:] == ("--listen", "host.docker.internal", "--target", "localhost", "443", "9001")
        assert relay.extra_hosts == (("host.docker.internal", "host-gateway"),)
        assert relay.image == next(image.name for image in deployment.images if image.kind == "native")
        assert sum("host-relay takes connections" in note for instance, note in deployment.notes if instance == "policy_model") == 2

    def test_without_need_there_is_none(self, local: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
        config = make_config(local)
        deployment = compile(config, make_sources(config), make_options(loopback_ports=frozenset({7})))
        assert all(service.role != "relay" for service in deployment.services)
        assert any("must not listen on 127.0.0.1 alone" in note for _, note in deployment.notes)

    def test_it_may_be_forbidden(self, local: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
        local["compose"] = {"host_relay": False}
        config = make_config(local)
        with pytest.raises(CompileError, match="listened on at loopback alone") as caught:
            compile(config, make_sources(config), make_options(loopback_ports=frozenset({9001})))
        assert "openai_base_url.0" in str(caught.value)
        assert compile(config, make_sources(config), make_options())

    def test_the_rendered_service(self, local: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
        import yaml

        from gym_compose.compiler.fragments import parse_fragments
        from gym_compose.compiler.render import compose_text

        config = make_config(local)
        options = make_options(loopback_ports=frozenset({9001}))
        text = compose_text(compile(config, make_sources(config), options), parse_fragments(options.assets), "/d")
        service = yaml.safe_load(text)["services"]["host-relay"]
        assert service["network_mode"] == "host"
        assert not service.keys() & {"networks", "dns_opt", "ports"}
        assert service["read_only"] is True
