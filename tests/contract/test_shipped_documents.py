"""The C loader reads every YAML file of the peer as OmegaConf's own loader does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_compose.config.documents import load_document
from gym_compose.config.errors import ConfigError


@pytest.mark.slow
def test_every_shipped_file_reads_as_omegaconf_reads_it(peer_root: Path) -> None:
    files = sorted(path for suffix in ("yaml", "yml") for path in peer_root.rglob(f"*.{suffix}"))
    assert len(files) > 900
    different = []
    refused = 0
    for path in files:
        try:
            expected = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        except (OmegaConfBaseException, yaml.YAMLError, OSError, AssertionError):
            expected = None
        try:
            actual = load_document(path).tree
        except ConfigError:
            actual = None
            refused += 1
        if isinstance(expected, dict) and actual != expected:
            different.append(str(path))
        if expected is None and actual is not None:
            # What OmegaConf refuses while making its objects (an open "${") is refused by us when the layers are merged.
            with pytest.raises(OmegaConfBaseException):
                OmegaConf.create(actual)
    assert not different
    assert refused < 10
