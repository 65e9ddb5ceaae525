"""What the output of a failed build means. The texts are uv 0.13.9's, BuildKit's and apt's own."""

from __future__ import annotations

import pytest

from gym_compose.compiler.deployment import Image, Requested
from gym_compose.engine.docker.build_failure import blamed, explain, installer_reason, output_lines
from gym_compose.engine.errors import DiskFullError, ImageBuildError, RequirementsError

REQUESTED = (
    Requested("math", "/w/math/requirements.txt:3", "no-such-package-xyz==9"),
    Requested("math", "/w/math/requirements.txt:4", "Demo_pkg>=1"),
    Requested("judge", "/w/judge/requirements.txt:1", "none @ http://127.0.0.1:9/none-1.0-py3-none-any.whl"),
)
IMAGE = Image("gym-compose/requirements:1", "1", "requirements", (), dockerfile="FROM x\n", requested=REQUESTED)


def step(text: str) -> list[str]:
    """As BuildKit prints a step that fails."""
    said = [f"#12 3.25{number} {line}" for number, line in enumerate(text.splitlines())]
    end = ["#12 ERROR: x", "------", " > [stage-2 2/2] RUN sh install.sh:", "------"]
    return ["#12 [stage-2 2/2] RUN sh install.sh", *said, *end, "failed to solve: executor failed running [/bin/sh -c x]: exit code: 1"]


CASES = {
    "unknown": (
        "Using Python 3.13.5 environment at: /opt/gym\n"
        "error: No solution found when resolving dependencies\n"
        "  cause: Because no-such-package-xyz was not found in the package registry and you require no-such-package-xyz==9, we can "
        "conclude that your requirements are unsatisfiable.",
        "math: /w/math/requirements.txt:3", "no-such-package-xyz==9 cannot be installed: they cannot be met",
    ),
    "network": (
        "error: Failed to download `none @ http://127.0.0.1:9/none-1.0-py3-none-any.whl`\n"
        "  cause: Request failed after 3 retries in 10.4s\n  cause: client error (Connect)\n  cause: tcp connect error\n"
        "  cause: Connection refused (os error 111)",
        "judge: /w/judge/requirements.txt:1", "the build does not reach where they come from",
    ),
    "dns": (
        "error: Request failed after 3 retries in 11.1s\n  cause: Failed to fetch: https://index.invalid/simple/demo-pkg/\n"
        "  cause: client error (Connect)\n  cause: dns error\n"
        "  cause: failed to lookup address information: Temporary failure in name resolution",
        "math: /w/math/requirements.txt:4", "the build does not reach where they come from",
    ),
    "platform": (
        "Resolved 1 package in 6ms\nerror: Failed to determine installation plan\n"
        "  cause: A path (demo_pkg-1.0-cp313-cp313-win_amd64.whl) dependency is incompatible with the current platform",
        "math: /w/math/requirements.txt", "there is no wheel of it for this platform",
    ),
    "platform tag": (
        "error: No solution found when resolving dependencies\n  cause: Because demo-pkg==1.0 has no wheels with a matching platform tag "
        "(e.g., `manylinux_2_41_x86_64`) and you require demo-pkg, we can conclude that your requirements are unsatisfiable.",
        "math: /w/math/requirements.txt:4", "there is no wheel of it for this platform",
    ),
    "python": (
        "error: No solution found when resolving dependencies\n  cause: Because demo-pkg==1.0 requires Python >=3.14 and only "
        "demo-pkg==1.0 is available, we can conclude that all versions of demo-pkg cannot be used.\n"
        "         And because you require demo-pkg, we can conclude that your requirements are unsatisfiable.",
        "math: /w/math/requirements.txt:4", "it is not made for the image's Python",
    ),
    "sources": (
        "error: The build backend returned an error\n  cause: Call to `setuptools.build_meta:__legacy__.get_requires_for_build_wheel` "
        "failed (exit status: 1)\n\n         [stderr]\n         cannot: needs libfoo",
        "math: /w/math/requirements.txt", "it has no wheel, and its sources cannot be built",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_line_its_place_and_the_installers_reason(name: str) -> None:
    text, where, says = CASES[name]
    error = explain(IMAGE, step(text), ("math", "judge"))
    assert isinstance(error, RequirementsError)
    assert error.exit_code == 5
    assert where in str(error.where)
    assert says in error.message
    assert error.details[0].startswith("error: ")
    assert not any("failed to solve" in line or line.startswith("#") for line in error.details)


def test_a_full_disk_is_said_as_such_also_during_export() -> None:
    export = ["#15 exporting to image", "#15 exporting layers", "failed to solve: write /var/lib/docker/tmp/x: no space left on device"]
    for output in (
        export,
        step("error: Failed to install\n  cause: failed to write to file `/opt/gym/x`: No space left on device (os error 28)"),
    ):
        error = explain(IMAGE, output, ("math",))
        assert isinstance(error, DiskFullError)
        assert "it is for math" in error.message


def test_another_minor_python_names_the_base_to_set() -> None:
    output = step("gym-compose-python: NeMo Gym asks for Python 3.13.14 and the base image has 3.12")
    error = explain(IMAGE, output, ())
    assert isinstance(error, ImageBuildError)
    assert "the base image has 3.12" in error.message
    assert "GYM_COMPOSE_BASE_IMAGE=python:3.13-slim" in str(error.hint)


def test_a_debian_package_that_does_not_exist() -> None:
    image = Image("gym-compose/system:1", "1", "system", (), dockerfile="FROM x\n")
    error = explain(image, step("Reading package lists...\nE: Unable to locate package no-such-deb"), ("math",))
    assert error is not None
    assert "there is no Debian package no-such-deb; it is for math" in error.message


def test_what_is_not_known_is_left_to_the_caller() -> None:
    assert explain(IMAGE, step("Segmentation fault"), ()) is None
    assert explain(Image("x:1", "1", "server", ()), step(CASES["unknown"][0]), ()) is None


def test_names_are_compared_as_packages_are() -> None:
    assert [asked.line for asked in blamed(REQUESTED, "you require demo-pkg>=1")] == ["Demo_pkg>=1"]
    assert blamed(REQUESTED, "you require demo") == ()


def test_the_reason_is_the_last_error() -> None:
    lines = output_lines(["#3 0.1 error: first", "#3 0.2 error: second", "#3 0.3   cause: third", "------"])
    assert installer_reason(lines) == ("error: second", "cause: third")
    assert installer_reason(["nothing"]) == ()
