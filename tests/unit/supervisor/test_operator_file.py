"""The operator's file, as ``HOSTCORE_CONFIG`` names it."""

import os
from pathlib import Path

import pytest

from hostcore.supervisor.operator_file import VARIABLE, InvalidOperatorFile, read_operator_file


def test_a_link_to_the_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mounted.toml").write_text("")
    (tmp_path / "operator.toml").symlink_to("mounted.toml")  # as Kubernetes mounts a ConfigMap
    assert read_operator_file({VARIABLE: str(tmp_path / "operator.toml")}).path == tmp_path / "operator.toml"


def test_a_pipe_in_its_place_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "operator.toml")
    with pytest.raises(InvalidOperatorFile, match="is no regular file"):
        read_operator_file({VARIABLE: str(tmp_path / "operator.toml")})
