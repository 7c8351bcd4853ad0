"""Task options and settings: checks, units, where values come from."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from outboard.options import SETTING_NAMES, Settings, TaskOptions, parse_flag, parse_nbytes, parse_seconds


def test_merged_replaces_and_keeps_the_rest() -> None:
    base = TaskOptions(num_cpus=2)
    merged = base.merged(num_returns=3, retry_exceptions=[KeyError], resources={"licence": 1})
    assert (merged.num_cpus, merged.num_returns, merged.retry_exceptions) == (2, 3, (KeyError,))
    assert base.num_returns == 1
    assert pickle.loads(pickle.dumps(merged)) == merged


def test_demand_is_exact_and_leaves_out_zeros() -> None:
    options = TaskOptions().merged(num_cpus=0.1, num_gpus=0.5, resources={"licence": 2, "none": 0})
    assert options.demand() == {"CPU": 1000, "GPU": 5000, "licence": 20_000}
    assert TaskOptions(num_cpus=0).demand() == {}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            {"num_cpu": 1},
            ValueError,
            r"unknown task option 'num_cpu' \(did you mean 'num_cpus'\?\); valid are num_cpus, ",
        ),
        ({"zzz": 1}, ValueError, "unknown task option 'zzz'; valid are"),
        ({"num_cpus": -1}, ValueError, "num_cpus must be 0 or more"),
        ({"num_cpus": float("nan")}, ValueError, "num_cpus must be 0 or more"),
        ({"num_cpus": float("inf")}, ValueError, "num_cpus must be 0 or more"),
        ({"num_cpus": 1e-6}, ValueError, "num_cpus must be 0 or at least"),
        ({"num_cpus": "2"}, TypeError, "num_cpus must be a number"),
        ({"num_cpus": True}, TypeError, "num_cpus must be a number"),
        ({"num_gpus": 1.5}, ValueError, "num_gpus must be below 1 or a whole number"),
        ({"resources": {"CPU": 1}}, ValueError, "resources may not contain 'CPU': use num_cpus="),
        ({"resources": {"GPU": 1}}, ValueError, "resources may not contain 'GPU': use num_gpus="),
        ({"resources": {"a": -1}}, ValueError, r"resources\['a'\] must be 0 or more"),
        ({"num_returns": -1}, ValueError, "num_returns must be 0 or more"),
        ({"num_returns": 1.0}, TypeError, "num_returns must be a whole number"),
        ({"max_retries": -2}, ValueError, "max_retries must be -1 or more"),
        ({"retry_exceptions": "all"}, TypeError, "retry_exceptions must be True, False or exception classes"),
        ({"retry_exceptions": [1]}, TypeError, "retry_exceptions must be True, False or exception classes"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        TaskOptions().merged(**changes)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("512MiB", 512 << 20), ("2 GB", 2 * 10**9), ("1.5kib", 1536), ("100", 100), ("30%", 0.3), (7, 7), ("1T", None)],
)
def test_sizes(text: str, nbytes: int | float | None) -> None:
    if nbytes is None:
        with pytest.raises(ValueError, match="is not a size"):
            parse_nbytes(text)
    else:
        assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "MiB", "-1", "0", "120%", "1 XiB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_nbytes(text)


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        (2_000_000, 2_000_000),
        ("2GB", 2 * 10**9),
        ("2000000", 2_000_000),
        ("1.5 MiB", 3 << 19),
        (1.0, 1.0),
        (0.3, 0.3),
        ("0.3", 0.3),
        ("30%", 0.3),
        ("1.0", 1.0),
    ],
)
def test_room_for_objects_is_bytes_when_whole_and_a_fraction_otherwise(given: Any, meaning: float) -> None:
    for settings in (Settings.load({}, store_memory=given), Settings.load({"OUTBOARD_STORE_MEMORY": str(given)})):
        assert settings.store_memory == meaning and type(settings.store_memory) is type(meaning)


@pytest.mark.parametrize(
    "given", [1, 0, -1, 0.0, -0.5, 1.5, 2e9, float("nan"), "1", "0", "1.5", "0.0", "120%", "-1GB", "much", "nan"]
)
def test_nonsense_as_room_for_objects_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"setting store_memory: .*(fraction|at least|size)"):
        Settings.load({}, store_memory=given)
    with pytest.raises(ValueError, match="setting store_memory: "):
        Settings.load({"OUTBOARD_STORE_MEMORY": str(given)})
    for other in (True, [1], b"1"):
        with pytest.raises(ValueError, match="an int is bytes, a float a fraction"):
            Settings.load({}, store_memory=other)


@pytest.mark.parametrize("given", [-1, float("nan"), float("inf"), True, "-2"])
def test_negative_and_boundless_amounts_are_refused(given: Any) -> None:
    for explicit in ({"num_cpus": given}, {"num_gpus": given}, {"resources": {"licence": given}}):
        with pytest.raises(ValueError, match="0 or more"):
            Settings.load({}, **explicit)
    with pytest.raises(ValueError, match="setting of its own: num_cpus"):
        Settings.load({}, resources={"CPU": 1})


def test_durations_and_flags() -> None:
    assert [parse_seconds(t) for t in ("1.5", "10s", "200ms", "2 min", 3)] == [1.5, 10, 0.2, 120, 3]
    assert [parse_flag(t) for t in ("1", "Yes", "on", "0", "false", True)] == [True, True, True, False, False, True]
    for parse, text in ((parse_seconds, "soon"), (parse_seconds, "5 nm"), (parse_flag, "maybe")):
        with pytest.raises(ValueError):
            parse(text)


def test_settings_come_from_arguments_then_environment_then_defaults() -> None:
    environ = {
        "OUTBOARD_NUM_CPUS": "4",
        "OUTBOARD_STORE_MEMORY": "25%",
        "OUTBOARD_LOG_PREFIX": "yes",
        "OUTBOARD_RESOURCES": "licence=2, disk=0.5",
        "OUTBOARD_ADDRESS": "",
        "HOME": "/",
    }
    settings = Settings.load(environ, num_cpus=2, num_gpus=None)
    assert (settings.num_cpus, settings.log_prefix, settings.address) == (2, True, None)
    assert settings.resources == {"licence": 2, "disk": 0.5}
    assert settings.store_memory == 0.25
    assert Settings.load({}) == Settings()


def test_each_setting_is_documented() -> None:
    assert all(f"{name}: " in (Settings.__doc__ or "") for name in SETTING_NAMES)


@pytest.mark.parametrize(
    ("environ", "explicit", "text"),
    [
        ({}, {"num_cpu": 1}, "unknown setting 'num_cpu' .did you mean 'num_cpus'"),
        ({"OUTBOARD_NUMCPUS": "1"}, {}, "unknown setting 'OUTBOARD_NUMCPUS' .did you mean 'OUTBOARD_NUM_CPUS'"),
        ({"OUTBOARD_NUM_CPUS": "two"}, {}, "setting num_cpus: "),
        ({}, {"start_timeout": "soon"}, "setting start_timeout: "),
    ],
)
def test_wrong_settings_are_refused(environ: dict[str, str], explicit: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Settings.load(environ, **explicit)


def test_other_variables_of_our_prefix_are_left_alone() -> None:
    Settings.load({"OUTBOARD_TEST_NATIVE": "1", "OUTBOARD_TOKEN_FILE": "/x"})


@pytest.mark.parametrize(
    ("variable", "given", "text"),
    [
        ("RESOURCES", '{"licence": 2}', "is no name=amount, as in licence=2,disk=0.5 (in OUTBOARD_RESOURCES)"),
        ("RESOURCES", "licence=much", "'much' is not a number (in OUTBOARD_RESOURCES)"),
        ("NUM_CPUS", "many", "setting num_cpus: 'many' is not a number (in OUTBOARD_NUM_CPUS)"),
    ],
)
def test_wrong_variable_is_named(variable: str, given: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Settings.load({f"OUTBOARD_{variable}": given})
