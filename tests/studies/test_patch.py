"""Agents on the planted patch: a command that goes on where it stopped, and a gate that opens where it should."""

from __future__ import annotations

import json

import pytest

from symbreak.studies.patch import CONTENDERS, GATES, main, trained


def test_runs_that_stand_in_the_file_are_not_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("symbreak.process.cores.use_one_core", lambda: None)
    out = tmp_path / "patch.jsonl"
    done = [{"method": m, "variant": v, "seed": 0, "steps": 510} for m, v in CONTENDERS if m != "vanilla"]
    out.write_text("".join(json.dumps(row) + "\n" for row in done))
    main(["--out", str(out), "--steps", "510", "--seeds", "1"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[:-1] == done
    assert (rows[-1]["method"], rows[-1]["seed"]) == ("vanilla", 0)
    assert -4 <= rows[-1]["return"] <= 4
    capsys.readouterr()
    main(["--out", str(out), "--steps", "510", "--seeds", "1"])
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_trained_gate_opens_in_the_patch():
    row = trained("partial", GATES[0], seed=0, steps=4_000)
    assert row["auroc"] > 0.9
    assert row["on_broken"] > 3 * row["on_symmetric"]
