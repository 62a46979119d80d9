"""The configuration: file, environment and flags, which of them comes first, and which mistakes are refused."""

from __future__ import annotations

import grp
import json
import os
import pathlib
import re

import pytest

import shmreplay as sr
from shmreplay.daemon.config.configuration import ConfigError, DaemonConfig, read_config
from shmreplay.daemon.config.open_files import possible_clients
from shmreplay.daemon.config.settings import SETTINGS, Setting
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.daemon.process.summary import summary, summary_json
from tests.support.repository import ROOT

EXAMPLE = ROOT / "daemon" / "systemd" / "system" / "shmreplayd.toml"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")

FULL = """
[daemon]
socket = "/run/x/x.sock"
instance = "one"
keep_tables = true
[memory]
directory = "/dev/shm"
huge_pages = "never"
numa = "interleave"
[limits]
clients = 8
memory = "2 GiB"
streams = 64
[checkpoints]
directory = "/var/lib/x"
interval_s = 600
keep = 3
at_stop = true
restore = true
[log]
level = "DEBUG"
format = "json"
[metrics]
listen = "[::1]:9464"
[web]
listen = "/run/x/web.sock"
[tables.replay]
max_size = 100
max_streams = 4
columns = { x = "float32" }
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "d.toml"


def read(file: pathlib.Path, text: str, *flags: str, **environment: str) -> DaemonConfig:
    file.write_text(text, encoding="utf-8")
    return read_config(["--config", str(file), *flags], environment)


def problems(file: pathlib.Path, text: str, *flags: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(file, text, *flags, **environment)
    return raised.value.problems


def test_without_a_word_all_settings_are_at_their_defaults() -> None:
    config = read_config([], {})
    assert {given.where for given in config.settings.values()} == {"default"}
    assert (config.instance, config.checkpoints.keep, config.log_level, config.tables) == ("default", 2, "INFO", ())
    assert (config.metrics, config.web) == (None, None)


def test_a_file_tells_all(file: pathlib.Path) -> None:
    config = read(file, FULL)
    assert not [key for key, given in config.settings.items() if given.where == "default" and key != "daemon.group"]
    assert (config.socket, config.instance, config.keep_tables) == ("/run/x/x.sock", "one", True)
    assert (config.directory, config.pages.huge_pages, config.pages.numa) == ("/dev/shm", "never", "interleave")
    assert (config.max_clients, config.limits.memory_bytes, config.limits.streams) == (8, 2 * 2**30, 64)
    saving = config.checkpoints
    assert (saving.directory, saving.interval_s, saving.keep, saving.at_stop) == ("/var/lib/x", 600, 3, True)
    assert (config.restore, config.log_level, config.log_format) == (True, "DEBUG", "json")
    assert config.metrics == Endpoint(host="::1", port=9464)
    assert str(config.metrics) == "[::1]:9464"
    assert config.web == Endpoint(path="/run/x/web.sock")
    assert config.tables == (sr.Table("replay", {"x": sr.ArraySpec((), "float32")}, 100, max_streams=4),)
    assert config.file == str(file)


def test_the_environment_goes_over_the_file_and_flags_over_both(file: pathlib.Path) -> None:
    environment = {"SHMREPLAYD_LOG_LEVEL": "ERROR", "SHMREPLAYD_INSTANCE": "two", "SHMREPLAYD_CHECKPOINTS_KEEP": "7"}
    config = read(file, FULL, "--instance", "three", "--no-restore", **environment)
    assert (config.log_level, config.instance, config.restore) == ("ERROR", "three", False)
    assert config.checkpoints.keep == 7
    where = {key: given.where for key, given in config.settings.items()}
    assert where["log.level"] == "$SHMREPLAYD_LOG_LEVEL"
    assert where["daemon.instance"] == "--instance"
    assert where["log.format"] == f"{file}:22: log.format"


def test_the_file_may_be_named_by_the_environment(file: pathlib.Path) -> None:
    file.write_text(FULL, encoding="utf-8")
    assert read_config([], {"SHMREPLAYD_CONFIG": str(file)}).instance == "one"
    assert read_config([], {"SHMREPLAYD_CONFIG": ""}).file is None


def test_every_setting_has_a_variable_of_its_name() -> None:
    texts = {
        "SHMREPLAY_SOCKET": "/run/y.sock",
        "SHMREPLAYD_INSTANCE": "y",
        "SHMREPLAYD_GROUP": str(os.getgid()),
        "SHMREPLAYD_KEEP_TABLES": "yes",
        "SHMREPLAYD_MEMORY_DIRECTORY": "/dev/shm",
        "SHMREPLAYD_MEMORY_HUGE_PAGES": "never",
        "SHMREPLAYD_MEMORY_NUMA": "interleave",
        "SHMREPLAYD_LIMITS_CLIENTS": "9",
        "SHMREPLAYD_LIMITS_MEMORY": "4096",
        "SHMREPLAYD_LIMITS_STREAMS": "1_000",
        "SHMREPLAYD_CHECKPOINTS_DIRECTORY": "/var/lib/y",
        "SHMREPLAYD_CHECKPOINTS_INTERVAL_S": "0.5",
        "SHMREPLAYD_CHECKPOINTS_KEEP": "1",
        "SHMREPLAYD_CHECKPOINTS_AT_STOP": "false",
        "SHMREPLAYD_CHECKPOINTS_RESTORE": "0",
        "SHMREPLAYD_METRICS_LISTEN": "localhost:0",
        "SHMREPLAYD_WEB_LISTEN": "localhost:0",
        "SHMREPLAYD_LOG_LEVEL": "ERROR",
        "SHMREPLAYD_LOG_FORMAT": "json",
    }
    config = read_config([], texts)
    assert {given.where for given in config.settings.values()} == {f"${name}" for name in texts}
    assert (config.keep_tables, config.limits.memory_bytes, config.checkpoints.interval_s) == (True, 4096, 0.5)


def test_an_embedded_daemon_is_told_by_flags_alone(file: pathlib.Path) -> None:
    flags = ("--embedded", "--parent-pid", "1", "--socket", "/run/z.sock")
    config = read_config(flags, {"SHMREPLAYD_CONFIG": str(file), "SHMREPLAYD_INSTANCE": "y", "SHMREPLAYD_X": "y"})
    assert (config.instance, config.file, config.log_level) == ("default", None, "WARNING")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[log]\nlevel = 'LOUD'", ":2: log.level is 'LOUD'; expected one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
        ("[log]\nlevel = 3", ":2: log.level is 3; expected one of 'DEBUG', "),
        ("\n[log]\nlevle = 'INFO'", ":3: log.levle is not known; did you mean 'level'?"),
        ("[log]\nx = 1", ":2: log.x is not known; [log] has level, format"),
        ("[logs]\nlevel = 'INFO'", ":1: logs is not known; did you mean 'log'?"),
        ("log = 3", ":1: log is 3; expected a section, [log]"),
        ("[checkpoints]\ndirectory = '/x'\ninterval_s = 0", ":3: checkpoints.interval_s is 0; expected a number of s"),
        ("[checkpoints]\ndirectory = '/x'\ninterval_s = nan", ":3: checkpoints.interval_s is nan; expected a number"),
        ("[checkpoints]\ndirectory = '/x'\ninterval_s = true", ":3: checkpoints.interval_s is True; expected a num"),
        ("[checkpoints]\ndirectory = 'x'", ":2: checkpoints.directory is 'x'; expected an absolute path"),
        ("[checkpoints]\nat_stop = true", ":2: checkpoints.at_stop: checkpoints need checkpoints.directory (--check"),
        ("[checkpoints]\nkeep = 1.5", ":2: checkpoints.keep is 1.5; expected a whole number of at least 1"),
        ("[daemon]\nsocket = 'x.sock'", ":2: daemon.socket is 'x.sock'; expected the absolute path of a socket, such"),
        ("[daemon]\nsocket = '/" + "x" * 110 + "'", "Linux allows 107"),
        ("[metrics]\nlisten = '0.0.0.0:9464'", ":2: metrics.listen is '0.0.0.0:9464'; expected the absolute path"),
        ("[metrics]\nlisten = '127.0.0.1:65536'", ":2: metrics.listen is '127.0.0.1:65536'; expected the abs"),
        ("[metrics]\nlisten = 9464", ":2: metrics.listen is 9464; expected the absolute path of a socket, or a port"),
        ("[daemon]\ninstance = 'a.b'", ":2: daemon.instance is 'a.b': instance name 'a.b': expected 1 to 64 of"),
        ("[daemon]\ninstance = 3", ":2: daemon.instance is 3: instance name 3: expected 1 to 64 of"),
        ("[daemon]\ngroup = 'no-such-group'", ":2: daemon.group is 'no-such-group'; no such group on this machine"),
        ("[daemon]\ngroup = 12", ":2: daemon.group is 12; expected the name of a group"),
        ("[daemon]\nkeep_tables = 'yes'", ":2: daemon.keep_tables is 'yes'; expected true or false"),
        ("[limits]\nmemory = '64 GB'", ":2: limits.memory is '64 GB'; expected a number of bytes above 0, or a text"),
        ("[limits]\nmemory = '1 KiB'\n[tables.t]\nmax_size = 9\ncolumns = { x = 'bool' }",
         ": what is declared in tables needs "),
        ("[limits]\nstreams = 9\n[tables.t]\nmax_size = 9\nmax_streams = 10\ncolumns = { x = 'bool' }",
         "table 't': max_streams is 10; this shmreplayd allows at most 9 (limits.streams)"),
        ("[tables.t]\nmax_size = 0\ncolumns = { x = 'bool' }", ":2: tables.t: max_size is 0; expected an integer in 1"),
        ("[tables.t]\nmax_size = 1_000_000_000\ncolumns = { x = { dtype = 'uint8', shape = [1_000_000] } }",
         ":1: tables.t: arena 't': needs 909.7 TiB for its steps; an arena has at most 256.0 TiB: lower max_size"),
        ("[tables.t]\nmax_size = \n[log]", ":2: not TOML: Invalid value"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_with_file_line_and_key(file: pathlib.Path, text: str, problem: str) -> None:
    (found,) = problems(file, text)
    assert found.startswith(f"{file}:")
    assert problem in found


def test_a_variable_or_a_flag_that_cannot_be_is_named(file: pathlib.Path) -> None:
    assert problems(file, "", SHMREPLAYD_LIMITS_CLIENTS="many", SHMREPLAYD_LOG_LEVLE="INFO") == [
        "$SHMREPLAYD_LIMITS_CLIENTS is 'many'; expected a whole number of at least 1",
        "$SHMREPLAYD_LOG_LEVLE is not known; did you mean 'SHMREPLAYD_LOG_LEVEL'?",
    ]
    assert problems(file, "", "--log-level", "LOUD") == [
        "--log-level is 'LOUD'; expected one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"
    ]


def test_all_that_cannot_be_is_said_at_once(file: pathlib.Path) -> None:
    text = "[log]\nlevel = 1\nformat = 2\n[tables.t]\nmax_size = 0"
    assert len(problems(file, text, "--instance", "")) == 5


def test_all_of_several_tables_is_said_with_its_lines(file: pathlib.Path) -> None:
    text = "[tables.t]\nmax_sise = 1\ncolumns = { x = 'it64' }\n[tables.u]\nmax_size = 0\nkind = 'heap'\n"
    found = [problem.removeprefix(f"{file}:") for problem in problems(file, text + "columns = { x = 'bool' }")]
    assert [problem.partition(" ")[0] for problem in found] == ["2:", "3:", "1:", "5:", "6:"]
    assert "tables.u.kind is 'heap'" in found[4]


def test_every_limit_that_tables_do_not_keep_is_named(file: pathlib.Path) -> None:
    tables = "".join(f"[tables.{name}]\nmax_size = 9\nmax_streams = 10\ncolumns = {{ x = 'bool' }}\n" for name in "tu")
    first, second, third = problems(file, f"[limits]\nstreams = 9\nmemory = '1 KiB'\n{tables}")
    assert "table 't': max_streams is 10; " in first
    assert "table 'u': max_streams is 10; " in second
    assert "what is declared in tables needs " in third


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}/none.toml cannot be read: No such file or directory")):
        read_config(["--config", str(tmp_path / "none.toml")], {})


def test_a_relative_path_on_the_command_line_is_of_the_directory_where_it_was_typed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = read_config(["--checkpoint-dir", "saved", "--socket", "x.sock"], {})
    assert (config.checkpoints.directory, config.socket) == (str(tmp_path / "saved"), str(tmp_path / "x.sock"))


def test_what_tables_warn_of_is_kept(file: pathlib.Path) -> None:
    text = "[tables.t]\nmax_size = 9\ncolumns = { x = 'bool' }\nrate_limiter = { kind = 'MinSize', "
    config = read(file, text + "min_size_to_sample = 10 }")
    (note,) = config.notes
    assert note.startswith(f"{file}: table 't': min_size_to_sample is 10, more than max_size 9")
    assert f"warning: {note}" in summary(config)


def test_more_clients_than_open_files_allow_are_warned_of(file: pathlib.Path) -> None:
    config = read(file, "[limits]\nclients = 2_000_000_000")
    assert config.max_clients < 2_000_000_000
    expected = f"{file}:2: limits.clients is 2000000000, but the limit of open files allows only "
    assert config.notes[0].startswith(expected)


def test_the_summary_tells_every_setting_and_where_it_comes_from(file: pathlib.Path) -> None:
    lines = summary(read(file, FULL, "--log-format", "text", SHMREPLAYD_LOG_LEVEL="ERROR")).splitlines()
    assert lines[0] == f"daemon.socket = /run/x/x.sock  ({file}:3)"
    for line in ("log.level = ERROR  ($SHMREPLAYD_LOG_LEVEL)", "log.format = text  (--log-format)",
                 "daemon.group = unset  (default)"):  # fmt: skip
        assert line in lines
    assert re.fullmatch(
        rf"tables replay: [0-9.]+ \w+ of shared memory in 1 arena; `shmreplay plan {file}`.*", lines[-1]
    )


def test_the_summary_in_json_has_the_same_as_values(file: pathlib.Path) -> None:
    config = read(file, FULL, "--check-config", "--json", SHMREPLAYD_LOG_LEVEL="ERROR")
    assert config.is_check
    assert config.is_json
    told = json.loads(summary_json(config))
    assert list(told["settings"]) == [setting.key for setting in SETTINGS]
    assert told["settings"]["daemon.socket"] == {"value": "/run/x/x.sock", "where": f"{file}:3"}
    assert told["settings"]["log.level"] == {"value": "ERROR", "where": "$SHMREPLAYD_LOG_LEVEL"}
    assert told["settings"]["daemon.group"] == {"value": None, "where": "default"}
    assert told["settings"]["limits.clients"]["value"] == config.max_clients
    assert told["settings"]["checkpoints.at_stop"]["value"] is True
    assert told["tables"] == ["replay"]
    assert told["table_bytes"] > 0
    assert told["warnings"] == [line.removeprefix("warning: ") for line in summary(config).splitlines()
                                if line.startswith("warning: ")]  # fmt: skip


def test_json_is_of_a_check_alone(file: pathlib.Path) -> None:
    assert problems(file, "", "--json") == [
        "--json needs --check-config; for the log use log.format (--log-format json)"
    ]


def test_the_summary_tells_what_will_be_in_force_where_nobody_said_a_word() -> None:
    config = read_config([], {})
    lines = summary(config).splitlines()
    assert config.max_clients == possible_clients()
    for line in ("memory.directory = /dev/shm", f"limits.clients = {possible_clients()}",
                 "limits.memory = what the machine has", "limits.streams = any number"):  # fmt: skip
        assert f"{line}  (default)" in lines


def warnings_of(config: DaemonConfig) -> list[str]:
    return [line for line in summary(config).splitlines() if line.startswith("warning: ")]


def test_a_directory_for_checkpoints_that_lacks_is_warned_of(
    file: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"[checkpoints]\ndirectory = '{tmp_path}/a/b'"
    said = f"warning: {file}:2: checkpoints.directory is '{tmp_path}/a/b', "
    assert warnings_of(read(file, text)) == [said + "which does not exist yet: the daemon will make it"]
    (tmp_path / "a").write_text("no directory", encoding="utf-8")
    assert warnings_of(read(file, text)) == [said + f"but {tmp_path}/a is not a directory: no checkpoint can be saved"]
    (tmp_path / "a").unlink()
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert warnings_of(read(file, text)) == []
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to all
    assert warnings_of(read(file, text)) == [
        said + f"but uid {os.geteuid()} may not write to {tmp_path}/a/b: no checkpoint can be saved"
    ]


def test_tables_that_need_more_than_there_is_are_warned_of(file: pathlib.Path) -> None:
    text = "[tables.t]\nmax_size = 900_000_000\nmax_streams = 8\ncolumns = { x = { dtype = 'uint8', shape = [1_000] } }"
    (warning,) = warnings_of(read(file, text))
    assert re.match(r"warning: what is declared in tables needs .* in all and .* free; ", warning)


def test_a_directory_for_segments_that_is_not_there_is_warned_of(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (warning,) = warnings_of(read(file, f"[memory]\ndirectory = '{tmp_path}/none'"))
    assert warning.startswith(f"warning: the directory for segments {tmp_path}/none does not exist; ")


# --- the example, and the page ----------------------------------------------------------------------------------------


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> grp.struct_group:
    """The group of the example, as on a machine where it was installed."""
    entry = grp.struct_group(("shmreplay", "x", 12345, []))
    monkeypatch.setattr(grp, "getgrnam", {"shmreplay": entry}.__getitem__)
    return entry


def test_the_example_is_what_a_service_needs(group: grp.struct_group) -> None:
    config = read_config(["--config", str(EXAMPLE)], {})
    assert (config.group_id, config.group_name, config.keep_tables) == (12345, "shmreplay", True)
    assert config.checkpoints.directory == "/var/lib/shmreplay"
    assert config.checkpoints.at_stop
    assert config.restore
    assert config.log_format == "journal"


def test_the_example_shows_every_setting_and_what_it_shows_can_be_used(
    group: grp.struct_group, file: pathlib.Path
) -> None:
    text = re.sub(r"^#(?=[a-z\[])", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    config = read(file, text)
    assert [key for key, given in config.settings.items() if given.where == "default"] == []
    assert [table.name for table in config.tables] == ["replay"]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_the_page_names_every_setting_with_its_variable_and_its_flag(setting: Setting) -> None:
    row = f"| `{setting.key}` | `${setting.variable}` | `{setting.flags[0]}` | "
    assert row in OPERATIONS
