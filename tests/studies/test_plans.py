"""What a study consists of, and that its runs are told apart."""

from __future__ import annotations

import pytest

from symbreak.agents.methods import METHODS
from symbreak.errors import InputError
from symbreak.studies.plans import STUDIES, plan
from symbreak.tasks import get_task
from symbreak.training.settings import parse_config, parse_parts


@pytest.mark.parametrize("name", STUDIES)
def test_every_job_is_a_run_that_can_be_made_and_has_a_name_of_its_own(name):
    jobs = plan(name, seeds=2)
    assert len({job.name for job in jobs}) == len({job.digest for job in jobs}) == len(jobs)
    for job in jobs:
        config = parse_config(job.config.to_json())
        task = get_task(config.task)
        task.symmetry(config.symmetry)
        assert config.method in METHODS
        parse_parts(config, task.algorithm)


def test_the_published_studies_have_their_sizes():
    assert len(plan("grid-obstacles")) == 5 * 6 * 5
    assert len(plan("grid-reward")) == 2 * 6 * 5
    assert len(plan("grid-slip")) == 6 * 5
    assert len(plan("locomotion")) == 5 * 6 * 8
    assert len(plan("manipulation")) == 2 * 6 * 5
    assert {job.config.steps for job in plan("locomotion")} == {1_000_000}
    assert {job.config.gate["threshold"]["deviations"] for job in plan("ablation-threshold")} == {-0.5, 0.5, 1.5}


def test_a_plan_is_narrowed_by_methods_settings_seeds_and_steps():
    jobs = plan("grid-obstacles", seeds=2, steps=10, methods=["exact"], settings=["grid-20"])
    assert [job.name for job in jobs] == ["grid-20/exact/seed-0", "grid-20/exact/seed-1"]
    assert all(job.config.steps == 10 for job in jobs)
    assert plan("grid-obstacles", seeds=2, steps=10, methods=["exact"] * 2, settings=["grid-20"] * 2) == jobs


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"study": "grid-obstacle"}, "grid-obstacles"),
        ({"study": "grid-obstacles", "methods": ["exakt"]}, "exact"),
        ({"study": "grid-obstacles", "settings": ["grid-21"]}, "grid-20"),
        ({"study": "grid-obstacles", "seeds": 0}, "at least one seed"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest(arguments, says):
    with pytest.raises(InputError, match=says):
        plan(**arguments)


def test_the_digest_covers_what_determines_a_run():
    (job,) = plan("grid-obstacles", seeds=1, steps=10, methods=["exact"], settings=["grid-20"])
    (other,) = plan("grid-obstacles", seeds=1, steps=11, methods=["exact"], settings=["grid-20"])
    assert job.name == other.name
    assert job.digest != other.digest


def test_a_run_with_a_gate_is_taken_to_last_twice_as_long_and_the_published_recipe_longer():
    hours = {
        (job.config.method, job.config.preset): job.hours
        for name in ("grid-obstacles", "grid-paper")
        for job in plan(name, seeds=1, settings=["grid-20"])
    }
    plain, gated = hours["exact", "default"], hours["partial", "default"]
    assert hours["vanilla", "default"] == plain > 0
    assert gated == pytest.approx(2 * plain)
    assert hours["partial", "paper"] > 10 * gated
