"""The spaces of equivariant maps are those that the `emlp` package finds, for random pairs of representations.

Bases differ, so the projectors on their spans are compared. emlp runs unchanged under the pinned JAX, but compiles some
hundred small operations per pair; the tests therefore lend it NumPy in the place of `jax.numpy`, which makes it forty
times faster, and one test shows that this changes nothing.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

from symbreak.symmetry import Group, intertwiners

pytestmark = pytest.mark.xdist_group("emlp")  # importing it takes seconds: one worker is enough

PAIRS = 50
LARGEST = 700  # entries of a map; emlp solves densely up to far more, but slowly

GROUP_NAMES = ["Z2", "Z3", "Z4", "Z5", "C3", "C4", "C6", "D3", "D4", "D5", "SO2", "SO3", "O2", "O3", "S3", "S4"]


def import_emlp():
    with warnings.catch_warnings():
        # emlp and the packages it imports use names that are going away; nothing of ours runs inside this block.
        warnings.simplefilter("ignore")
        import emlp.groups
        import emlp.reps
    return emlp


@pytest.fixture
def emlp(monkeypatch):
    package = import_emlp()
    reps = package.reps
    still = SimpleNamespace(device_put=lambda array: array, scipy=SimpleNamespace(linalg=scipy.linalg))
    for module in (package.groups, reps.linear_operators, reps.representation):
        monkeypatch.setattr(module, "jnp", np)
    for module in (package.groups, reps.linear_operators, reps.product_sum_reps):
        monkeypatch.setattr(module, "jax", still)
    monkeypatch.setattr(reps.linear_operator_base, "np", np)
    monkeypatch.setattr(reps.representation.Rep, "solcache", {})  # no solution survives the loan
    return package


def dense(operator):
    return np.asarray(operator.to_dense() if hasattr(operator, "to_dense") else operator, dtype=float)


def both_groups(emlp, name):
    """The same generators for emlp and for us."""
    theirs = getattr(emlp.groups, name.rstrip("0123456789"))(int(name.lstrip("CDOSZ")))
    finite = [dense(g) for g in theirs.discrete_generators]
    circles = [tuple(range(len(theirs.lie_algebra)))] if len(theirs.lie_algebra) else []
    ours = Group(name, finite, lie=[dense(a) for a in theirs.lie_algebra], circles=circles)
    return theirs, ours


def random_ranks(rng, size):
    """Ranks of the tensors in a sum of one to three."""
    while True:
        ranks = rng.choice([0, 1, 2], size=rng.integers(1, 4)).tolist()
        if sum(size**rank for rank in ranks) <= 26:
            return ranks


def our_projector(group, source_ranks, target_ranks):
    """Maps between the sums, block by block of atoms, as one projector on flattened matrices."""
    sources, targets = ([group.vector**rank for rank in ranks] for ranks in (source_ranks, target_ranks))
    shape = (sum(atom.size for atom in targets), sum(atom.size for atom in sources))
    maps, row = [], 0
    for target in targets:
        column = 0
        for source in sources:
            for block in intertwiners(source, target):
                whole = np.zeros(shape)
                whole[row : row + target.size, column : column + source.size] = block
                maps.append(whole.ravel())
            column += source.size
        row += target.size
    basis = np.array(maps).reshape(-1, shape[0] * shape[1])
    return basis.T @ basis


def their_projector(emlp, group, source_ranks, target_ranks):
    source, target = (sum(emlp.reps.V**rank for rank in ranks) for ranks in (source_ranks, target_ranks))
    basis = dense((source(group) >> target(group)).equivariant_basis())
    return basis @ basis.T


def random_pair(seed):
    rng = np.random.default_rng(seed)
    name = GROUP_NAMES[seed % len(GROUP_NAMES)]
    size = {"S4": 4, "Z4": 4, "Z5": 5, "Z3": 3, "S3": 3, "SO3": 3, "O3": 3}.get(name, 2)
    while True:
        ranks = random_ranks(rng, size), random_ranks(rng, size)
        if np.prod([sum(size**rank for rank in side) for side in ranks]) <= LARGEST:
            return name, *ranks


@pytest.mark.parametrize("seed", range(PAIRS))
def test_spans_agree(emlp, seed):
    name, source_ranks, target_ranks = random_pair(seed)
    theirs, ours = both_groups(emlp, name)
    expected = their_projector(emlp, theirs, source_ranks, target_ranks)
    found = our_projector(ours, source_ranks, target_ranks)
    np.testing.assert_allclose(found, expected, atol=1e-5)  # emlp rounds its bases to float32


def test_pairs_are_varied():
    pairs = [random_pair(seed) for seed in range(PAIRS)]
    assert {name for name, *_ in pairs} == set(GROUP_NAMES)
    assert len({str(pair) for pair in pairs}) > 40
    assert sum(2 in source or 2 in target for _, source, target in pairs) > 25


@pytest.mark.parametrize("name", ["SO3", "D4"])
def test_numpy_in_its_place_changes_nothing(name, request):
    original = import_emlp()
    theirs, _ = both_groups(original, name)
    expected = their_projector(original, theirs, [1, 0], [0, 1])
    assert "jax" in type((original.reps.V >> original.reps.V)(theirs).equivariant_basis()).__module__
    lent = request.getfixturevalue("emlp")
    theirs, _ = both_groups(lent, name)
    assert isinstance((lent.reps.V >> lent.reps.V)(theirs).equivariant_basis(), np.ndarray)
    np.testing.assert_allclose(their_projector(lent, theirs, [1, 0], [0, 1]), expected, atol=1e-5)


def test_another_group_has_another_span(emlp):
    """The comparison tells groups apart whose representations have equal sizes."""
    _, ours = both_groups(emlp, "C4")
    theirs, _ = both_groups(emlp, "D4")
    expected = their_projector(emlp, theirs, [1], [1])
    assert np.abs(our_projector(ours, [1], [1]) - expected).max() > 0.1
