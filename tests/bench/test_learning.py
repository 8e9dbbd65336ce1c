"""The comparison of learning goes on where it stopped."""

from __future__ import annotations

import json

from symbreak.bench import learning


def test_what_stands_in_the_file_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def library(name):
        def train(task, seed, steps, evaluations):
            ran.append((name, seed))
            return [1.0, seed + 10.0]

        return train

    monkeypatch.setattr(learning, "LIBRARIES", {name: library(name) for name in ("ours", "sbx")})
    path = tmp_path / "found.jsonl"
    learning.main(seeds=1, steps=100, out=path)
    learning.main(seeds=2, steps=100, out=path)
    assert ran == [("ours", 0), ("sbx", 0), ("ours", 1), ("sbx", 1)]
    assert [json.loads(line)["returns"][-1] for line in path.read_text().splitlines()] == [10, 10, 11, 11]
    assert "sbx: 10 to 11, mean 10, 2 seeds" in capsys.readouterr().out
    learning.main(seeds=1, steps=200, out=path)
    assert len(ran) == 6  # another budget is another run
