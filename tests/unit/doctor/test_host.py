"""The checks of this host: whose ``gym`` it is, the CA bundle, free space."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from gym_compose.doctor import host as checks
from gym_compose.doctor.host import GIBIBYTE, Host, ca_check, command_check, disk_check, host_checks, owner_of

Usage = namedtuple("Usage", "total used free")
SCRIPTS = {
    "ours": "#!/x/python\nfrom gym_compose.cli.main import main\n",
    "nemo-gym": "#!/x/python\nfrom nemo_gym.cli.main import main\n",
    "another": "#!/bin/sh\necho gym\n",
}


def environment(directory: Path, **programs: str) -> Host:
    """A host whose PATH is ``directory/bin`` with these programs; the command's own Python stands there too."""
    place = directory / "bin"
    place.mkdir(parents=True)
    for name, owner in programs.items():
        script = place / name.replace("_", "-")
        script.write_text(SCRIPTS[owner])
        script.chmod(0o755)
    return Host({"PATH": str(place)}, directory, place / "python")


@pytest.mark.parametrize("owner", sorted(SCRIPTS))
def test_a_script_is_known_by_what_it_imports(tmp_path: Path, owner: str) -> None:
    environment(tmp_path, gym=owner)
    assert owner_of(tmp_path / "bin" / "gym") == owner
    assert owner_of(tmp_path / "missing") == "another"


def test_our_gym_of_this_environment_is_right(tmp_path: Path) -> None:
    check = command_check(environment(tmp_path, gym="ours", gym_compose="ours"))
    assert (check.status, check.said) == ("ok", f"ours ({tmp_path / 'bin' / 'gym'})")


def test_our_gym_of_another_environment_is_told_with_both_places(tmp_path: Path) -> None:
    found = environment(tmp_path / "other", gym="ours")
    check = command_check(Host(found.environ, tmp_path, tmp_path / "mine" / "bin" / "python"))
    assert check.status == "warn"
    assert str(tmp_path / "other" / "bin" / "gym") in check.said
    assert f"export PATH={tmp_path / 'mine' / 'bin'}:$PATH" in (check.hint or "")


@pytest.mark.parametrize(("owner", "words"), [("nemo-gym", "NeMo Gym's own"), ("another", "neither ours nor NeMo Gym's")])
def test_a_gym_that_is_not_ours_is_told_with_what_to_call_instead(tmp_path: Path, owner: str, words: str) -> None:
    check = command_check(environment(tmp_path, gym=owner, gym_compose="ours"))
    assert check.status == "warn"
    assert words in check.said
    assert f"gym-compose is always ours ({tmp_path / 'bin' / 'gym-compose'})" in (check.hint or "")


def test_no_gym_on_path(tmp_path: Path) -> None:
    check = command_check(environment(tmp_path, gym_compose="ours"))
    assert (check.status, check.said) == ("warn", f"gym is not on PATH, only gym-compose ({tmp_path / 'bin' / 'gym-compose'})")


def test_a_ca_variable_that_names_no_file_is_told(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("certificates")
    good = ca_check(Host({"SSL_CERT_FILE": str(bundle)}, tmp_path, tmp_path / "python"))
    assert (good.status, good.said) == ("ok", str(bundle))
    bad = ca_check(Host({"PIP_CERT": "/nowhere/ca.pem", "SSL_CERT_FILE": str(bundle)}, tmp_path, tmp_path / "python"))
    assert bad.status == "warn"
    assert bad.said == f"PIP_CERT=/nowhere/ca.pem: no such file; {bundle} is used"


def test_without_any_ca_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ca_bundle", lambda environ: None)
    assert ca_check(Host({}, tmp_path, tmp_path / "python")).status == "warn"


@pytest.mark.parametrize(("free", "status"), [(0.5, "fail"), (3.0, "warn"), (50.0, "ok")])
def test_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, status: str) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Usage:
        asked.append(path)
        return Usage(100 * GIBIBYTE, 0, int(free * GIBIBYTE))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    check = disk_check("disk", tmp_path / "not" / "there" / "yet", "place")
    assert (check.status, check.said) == (status, f"{free:.1f} GiB free (place)")
    assert asked == [tmp_path]


def test_all_of_them_in_order(tmp_path: Path) -> None:
    assert [check.name for check in host_checks(environment(tmp_path, gym="ours"))] == [
        "Python",
        "gym on PATH",
        "CA bundle",
        "disk for projects",
    ]
