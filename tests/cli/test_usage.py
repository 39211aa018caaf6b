from __future__ import annotations

import pytest

import millpond


@pytest.mark.parametrize("command", ["run", "query", "check", "explain", "sql", "demo"])
def test_every_command_has_help_with_examples(cli, command):
    done = cli(command, "--help")
    assert done.code == 0
    assert "Examples:" in done.out and f"millpond {command}" in done.out
    assert command in cli("--help").out


def test_version(cli):
    assert cli("--version").out == f"millpond {millpond.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["run"],
        ["run", "a.sql", "--colour"],
        ["query"],
        ["query", "SELECT 1", "--format", "xml"],
    ],
)
def test_wrong_usage_is_2(cli, args):
    done = cli(*args)
    assert done.code == 2 and "Usage:" in done.err
