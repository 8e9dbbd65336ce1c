"""Settings that do not fit are refused by name, with the nearest one that does."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from symbreak.agents.methods import METHODS
from symbreak.errors import InputError
from symbreak.tasks import get_task
from symbreak.training.build import build_agent
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
        ("agent", {"learning_rate": 3}, "did you mean 'rate'"),
        ("agent", {"gamma": 0.9}, "did you mean 'discount'"),
        ("agent", {"methd": "exact"}, "known are batch, width"),
        ("agent", {"width": 0}, "use 1 or more"),
        ("agent", {"rate": -1.0}, "more than 0"),
        ("agent", {"rate": "high"}, "type float"),
        ("agent", {"discount": 1.5}, "between 0 and 1"),
        ("agent", {"discount": 0}, "more than 0"),
        ("agent", {"polyak": 7}, "between 0 and 1"),
        ("agent", {"exploration_end": -0.1}, "between 0 and 1"),
        ("gate", {"largest_norm": 0}, "more than 0"),
        ("gate", {"expectile": 2}, "between 0 and 1"),
        ("gate", {"threshold": {"kind": "quantile", "level": 60}}, "level is 60; use a number between 0 and 1"),
        ("gate", {"threshold": {"kind": "sigma", "smoothing": 3}}, "between 0 and 1"),
        ("gate", {"warm_up": 3}, "did you mean 'warmup'"),
        ("gate", {"encoding": "furier"}, "did you mean 'fourier'"),
        ("gate", {"standardise": 1}, "type bool"),
        ("gate", {"threshold": {"kind": "sgma"}}, "did you mean 'sigma'"),
        ("gate", {"threshold": {"levl": 0.5}}, "did you mean 'level'"),
        ("gate", {"threshold": 0.5}, "it has parts: threshold.kind, threshold.deviations"),
        ("gate", {"threshold": {"deviations": 1.5}}, "gate.threshold.kind=sigma"),
    ],
)
def test_a_bad_setting_of_agent_or_gate_is_refused_by_name(part, change, named):
    with pytest.raises(InputError, match=named):
        parse_parts(parse_config({**GOOD, part: change}), "dqn")


def test_numbers_of_numpy_are_numbers():
    config = parse_config({**GOOD, "seed": np.int64(3), "agent": {"width": np.int32(16), "rate": np.float32(0.5)}})
    assert json.loads(json.dumps(config.to_json()))["agent"] == {"width": 16, "rate": 0.5}
    assert (type(config.seed), config.seed) == (int, 3)
    with pytest.raises(InputError, match="type int"):
        parse_config({**GOOD, "seed": np.float64(3.5)})


def test_good_settings_come_back_as_they_went():
    rule = {"kind": "quantile", "level": 0.7}
    config = RunConfig("grid-20", steps=5, agent={"width": 16, "rate": 1}, gate={"threshold": rule, "warmup": 0})
    again = parse_config(config.to_json())
    assert parse_parts(again, "dqn") == ({"width": 16, "rate": 1.0}, {"threshold": rule, "warmup": 0})
    assert parse_config(again.to_json()) == again


def test_settings_on_the_command_line():
    parts = parse_assignments(["agent.width=64", "gate.encoding=raw", 'gate.threshold={"kind": "sigma"}'])
    assert parts == {"agent": {"width": 64}, "gate": {"encoding": "raw", "threshold": {"kind": "sigma"}}}
    dotted = parse_assignments(["gate.threshold.kind=sigma", "gate.threshold.deviations=-0.5"])
    assert dotted["gate"] == {"threshold": {"kind": "sigma", "deviations": -0.5}}
    rule = parse_parts(parse_config({**GOOD, **dotted}), "dqn")[1]["threshold"]
    assert rule == {"kind": "sigma", "deviations": -0.5}
    with pytest.raises(InputError, match=r"gate\.threshold is 'sigma' already"):
        parse_assignments(["gate.threshold=sigma", "gate.threshold.level=0.5"])
    for wrong in ("width=64", "agents.width=64", "agent.width", "agent.=3"):
        with pytest.raises(InputError, match=r"agent\.NAME=VALUE"):
            parse_assignments([wrong])


def test_the_page_of_methods_lists_every_setting_with_what_it_is():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    rows = {name: values for name, *values in re.findall(r"\| `((?:agent|gate)\.[\w.]+)`" + 4 * r" \| (\S+)", page)}
    kinds = [(task, preset) for task in ("grid-20", "hopper") for preset in ("default", "paper")]
    listed = set()
    for column, (task, preset) in enumerate(kinds):
        agent = build_agent(get_task(task), "partial", preset=preset)
        gate = agent.gate.config
        for part, values in {"agent": agent.config, "gate": gate, "gate.threshold": gate.threshold}.items():
            for entry in fields(values):
                if (name := f"{part}.{entry.name}") != "gate.threshold":
                    listed.add(name)
                    shown = json.dumps(getattr(values, entry.name)).strip('"')
                    assert (name, task, preset, rows[name][column]) == (name, task, preset, shown)
    assert listed == set(rows)
    assert all(f"`{name}`" in page for name in METHODS)
