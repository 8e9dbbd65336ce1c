"""Settings that do not fit are refused by name, with the nearest one that does."""

from __future__ import annotations

import pytest

from symbreak.errors import InputError
from symbreak.gates.threshold import ThresholdRule
from symbreak.training.settings import RunConfig, parse_assignments, parse_config, parse_parts

GOOD = {"task": "grid-20", "method": "partial", "steps": 100, "agent": {"width": 16}, "gate": {"warmup": 5}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"methd": "partial"}, "did you mean 'method'"),
        ({"step": 3}, "did you mean 'steps'"),
        ({"evaluation": 3}, "did you mean 'evaluations'"),
        ({"chekpoint_every": 3}, "did you mean 'checkpoint_every'"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"steps": 0}, "steps is 0; use 1 or more"),
        ({"steps": -5}, "steps is -5"),
        ({"steps": 1.5}, "type int"),
        ({"steps": "many"}, "type int"),
        ({"seed": True}, "type int"),
        ({"seed": None}, "type int"),
        ({"evaluations": 0}, "use 1 or more"),
        ({"checkpoint_every": 0}, "use 1 or more"),
        ({"log_every": 0}, "use 1 or more"),
        ({"environment_timeout": 0}, "more than 0"),
        ({"environment_timeout": float("nan")}, "type float"),
        ({"task": 7}, "type str"),
        ({"agent": 7}, "agent is '7'"),
    ],
)
def test_a_bad_configuration_is_refused_by_name(change, named):
    with pytest.raises(InputError, match=named) as refusal:
        parse_config({**GOOD, **change})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("agent", {"widht": 3}, "did you mean 'width'"),
        ("agent", {"batchsize": 3}, "did you mean 'batch'"),
        ("agent", {"learning_rate": 3}, "did you mean 'learning_starts'"),
        ("agent", {"width": 0}, "use 1 or more"),
        ("agent", {"rate": -1.0}, "more than 0"),
        ("agent", {"rate": "high"}, "type float"),
        ("gate", {"warm_up": 3}, "did you mean 'warmup'"),
        ("gate", {"encoding": "furier"}, "did you mean 'fourier'"),
        ("gate", {"standardise": 1}, "type bool"),
        ("gate", {"threshold": {"kind": "sgma"}}, "did you mean 'sigma'"),
        ("gate", {"threshold": {"levl": 0.5}}, "did you mean 'level'"),
        ("gate", {"threshold": 0.5}, "type ThresholdRule"),
    ],
)
def test_a_bad_setting_of_agent_or_gate_is_refused_by_name(part, change, named):
    with pytest.raises(InputError, match=named):
        parse_parts(parse_config({**GOOD, part: change}), "dqn")


def test_good_settings_come_back_as_they_went():
    rule = ThresholdRule("quantile", level=0.7)
    config = RunConfig("grid-20", steps=5, agent={"width": 16, "rate": 1}, gate={"threshold": rule, "warmup": 0})
    again = parse_config(config.to_json())
    assert parse_parts(again, "dqn") == ({"width": 16, "rate": 1.0}, {"threshold": rule, "warmup": 0})
    assert parse_config(again.to_json()) == again


def test_settings_on_the_command_line():
    parts = parse_assignments(["agent.width=64", "gate.encoding=raw", 'gate.threshold={"kind": "sigma"}'])
    assert parts == {"agent": {"width": 64}, "gate": {"encoding": "raw", "threshold": {"kind": "sigma"}}}
    for wrong in ("width=64", "agents.width=64", "agent.width", "agent.=3"):
        with pytest.raises(InputError, match=r"agent\.NAME=VALUE"):
            parse_assignments([wrong])
