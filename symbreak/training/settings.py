"""What a run is told: read from a file or a command line, and refused by name where it does not fit."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from symbreak.errors import InputError
from symbreak.training.build import Preset

T = TypeVar("T")
MOST_ENVIRONMENTS = 1_000  # each is a simulator in memory
AT_LEAST_ONE = {
    *("batch", "width", "capacity", "evaluations", "episodes", "steps", "checkpoint_every", "log_every"),
    "environments",
    *("predictor_width", "predictor_steps", "predictor_every", "gate_every", "every", "few"),
}
ELSEWHERE = {  # what other libraries call them
    **{"learning_rate": "rate", "lr": "rate", "gamma": "discount", "tau": "polyak"},
    **{"batch_size": "batch", "buffer_size": "capacity", "kappa": "threshold"},
}
POSITIVE = {
    *("rate", "predictor_rate", "environment_timeout", "first_temperature"),
    *("discount", "polyak", "largest_norm", "multiple"),
}
AT_MOST_ONE = {
    *("discount", "polyak", "exploration_start", "exploration_end"),
    *("smoothing", "level", "expectile"),
}


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run, and when it is looked at and saved, which leaves no trace in learning."""

    task: str
    method: str = "partial"
    symmetry: str | None = None  # the task's first one
    preset: Preset = "default"
    steps: int | None = None  # the task's own budget
    seed: int = 0
    evaluations: int = 20  # spread evenly over the run
    episodes: int | None = None  # per evaluation: 128 on grid-worlds, 10 elsewhere
    agent: dict[str, Any] = field(default_factory=dict)  # settings of the algorithm that differ from the preset
    gate: dict[str, Any] = field(default_factory=dict)  # settings of the gate that differ from the preset
    checkpoint_every: int = 10_000  # environment steps
    environments: int = 1  # copies that take turns, one update per step of any
    log_every: int | None = None  # environment steps between rows of training metrics; none: with evaluations only
    environment_timeout: float = 60.0  # seconds for one step or reset

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def identity(self) -> dict[str, Any]:
        """What may not change in the middle of a run. One environment is not said: older runs do not know the key."""
        values = {name: value for name, value in self.to_json().items() if name != "environment_timeout"}
        if self.environments == 1:
            del values["environments"]
        return values

    def differences(self, other: RunConfig) -> str:
        """In words, what determines this run and is otherwise in the other one; empty if they are the same run."""
        mine, theirs = self.identity, other.identity
        names = [name for name in mine | theirs if mine.get(name) != theirs.get(name)]
        return ", ".join(f"{name} {mine.get(name)!r} and not {theirs.get(name)!r}" for name in names)


def parse_config(values: Mapping[str, Any], where: str = "the configuration") -> RunConfig:
    """A configuration whose keys and types are known; a typing mistake is answered with the nearest key."""
    if "task" not in values:
        raise InputError(f"{where} names no task; add one, `symbreak tasks` lists them")
    return parse(RunConfig, values, where)


def parse_parts(config: RunConfig, algorithm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of agent and gate with checked names and types; of a threshold's rule what is said of it."""
    from symbreak.agents.dqn import DQNConfig
    from symbreak.agents.sac import SACConfig
    from symbreak.gates.config import GateConfig

    kind = DQNConfig if algorithm == "dqn" else SACConfig
    agent = parse_some(kind, config.agent, f"agent settings of {algorithm.upper()}")
    gate = parse_some(GateConfig, config.gate, "gate settings")
    rule = config.gate.get("threshold")
    if isinstance(rule, Mapping) and "kind" not in rule:  # the preset's rule may be another one
        raise InputError("gate settings: threshold names no rule; add its kind, such as gate.threshold.kind=sigma")
    return agent, gate


def parse(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    return kind(**parse_some(kind, values, where))


def parse_some(kind: Any, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Checked values for some of the fields of a dataclass."""
    known = [entry.name for entry in fields(kind) if entry.init]
    hints = get_type_hints(kind)
    checked = {}
    for name, value in values.items():
        if name not in known:
            usual = [ours for ours in known if ours == ELSEWHERE.get(str(name))]
            nearest = usual or get_close_matches(str(name), known, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            raise InputError(f"{where}: there is no {str(name)[:80]!r}; {hint}")
        if name in AT_LEAST_ONE and isinstance(value, int) and value < 1:
            raise InputError(f"{where}: {name} is {value}; use 1 or more")
        if name == "environments" and isinstance(value, int) and value > MOST_ENVIRONMENTS:
            raise InputError(f"{where}: {name} is {value}; use {MOST_ENVIRONMENTS} or fewer")
        checked[name] = _checked(hints[name], value, f"{where}: {name}")
        number = checked[name]
        if number is None:
            continue
        if name in POSITIVE and number <= 0:
            raise InputError(f"{where}: {name} is {value}; use more than 0")
        if name in AT_MOST_ONE and not 0 <= number <= 1:
            raise InputError(f"{where}: {name} is {value}; use a number between 0 and 1")
    return checked


def _checked(hint: Any, value: Any, where: str) -> Any:
    origin, choices = get_origin(hint), get_args(hint)
    value = _plain(value)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in choices:
            return None
        return _checked(next(choice for choice in choices if choice is not type(None)), value, where)
    if origin is Literal:
        if value in choices:
            return value
        nearest = get_close_matches(str(value), [str(choice) for choice in choices], n=1, cutoff=0.3)
        hint_text = f"did you mean {nearest[0]!r}?" if nearest else f"use one of {', '.join(map(str, choices))}"
        raise InputError(f"{where} is {str(value)[:80]!r}; {hint_text}")
    if is_dataclass(hint):
        if isinstance(value, Mapping):
            return parse_some(hint, value, where)  # what is not said is the preset's
        if isinstance(value, hint):  # pyright: ignore[reportArgumentType]
            return value
        name, parts = where.rpartition(" ")[2], [entry.name for entry in fields(hint)]
        raise InputError(f"{where} is {str(value)[:80]!r}; it has parts: {', '.join(f'{name}.{p}' for p in parts)}")
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(value)
    elif origin is dict and isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif hint is int and isinstance(value, int) and not isinstance(value, bool):
        if value >= 0:
            return value
        raise InputError(f"{where} is {value}; use 0 or more")
    elif hint in (bool, str) and isinstance(value, hint):
        return value
    name = getattr(hint, "__name__", str(hint))
    raise InputError(f"{where} is {str(value)[:80]!r}; use a value of type {name}")


def _plain(value: Any) -> Any:
    """A number of NumPy's as Python's own, which files can hold."""
    return value.item() if isinstance(value, np.generic) else value


def parse_assignments(assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`agent.width=64 gate.threshold.kind=sigma` as settings of agent and gate; values are JSON, or text."""
    import json

    parts: dict[str, dict[str, Any]] = {"agent": {}, "gate": {}}
    for text in assignments:
        name, equals, value = text.partition("=")
        part, _, key = name.partition(".")
        if part not in parts or not key or not equals:
            raise InputError(f"--set {text[:80]!r} is not agent.NAME=VALUE or gate.NAME=VALUE")
        try:
            found = json.loads(value)
        except ValueError:
            found = value
        key, dot, inner = key.partition(".")
        if not dot:
            parts[part][key] = found
        elif isinstance(group := parts[part].setdefault(key, {}), dict):
            group[inner] = found
        else:
            raise InputError(f"--set {text[:80]!r}: {part}.{key} is {group!r} already")
    return parts
