# Every target sets up what it needs: .venv with the pinned dependencies.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test slow slow-networks faults mutants check bench learning screening studies results docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

# torch comes first and alone, so that no resolver replaces it by a build with CUDA.
$(VENV)/.baselines: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[baselines]"
	@touch $@

$(VENV)/.ray: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[ray]"
	@touch $@

demo: setup  ## train on a grid with obstacles and write a report
	rm -rf runs/demo
	$(BIN)/symbreak train grid-20 --method partial --steps 30000 --evaluations 6 --out runs/demo
	$(BIN)/symbreak report runs/demo -o runs/demo/report.html

test: setup  ## the tests, below twelve minutes on two cores
	$(BIN)/python -m pytest

# Of the rooms whose wider tiers compile or train for most of an hour only these files belong to `slow`.
LONG := tests/nn tests/storage tests/training
SOME := $(addprefix tests/training/test_,build.py loops.py)

# As users run it: `make test` turns the compiler's optimisation off, these do not.
slow slow-networks: export XLA_FLAGS :=
OPTIMISED := $(addprefix tests/,agents/test_routing.py training/test_resume.py)

slow: setup $(VENV)/.ray  ## the wider tiers, below 45 minutes on two cores
	$(BIN)/python -m pytest -m slow --timeout 2400 $(addprefix --ignore=,$(LONG))
	$(BIN)/python -m pytest -m slow --timeout 2400 $(SOME)
	$(BIN)/python -m pytest $(OPTIMISED)

slow-networks: setup  ## the widest tiers of layers and runs
	$(BIN)/python -m pytest -m slow --timeout 2400 $(LONG)

faults: setup  ## every fault a run must survive or name, one line per row; FAULTS="--only damage --tier small" chooses
	$(BIN)/python tests/faults/run.py $(FAULTS)

mutants: setup  ## deliberate faults, one or more for every trap, that the tests must notice
	$(BIN)/python tests/mutants/run.py --jobs 2

check: setup  ## style, types and import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q -n 0 tests/test_imports.py

bench: setup $(VENV)/.baselines  ## speed ratios, on one pinned core, into results/; 15 to 25 minutes
	$(BIN)/symbreak bench all

learning: setup $(VENV)/.baselines  ## our plain SAC beside SBX's on Hopper; adds to results/learning.jsonl
	$(BIN)/python -m symbreak.bench.learning

ROBOTS := swimmer:exact swimmer:paper ant:exact ant:paper fetch-reach:paper

screening: setup  ## variants of the gate alone, and the best two with an agent; adds to results/screening.jsonl, patch.jsonl
	$(BIN)/python -m symbreak.studies.screening grid-20 grid-40 patch $(ROBOTS) --out results/screening.jsonl
	$(BIN)/python -m symbreak.studies.screening grid-20:quadrant --only default trained --out results/screening.jsonl
	$(BIN)/python -m symbreak.studies.patch --out results/patch.jsonl

STUDY = $(BIN)/symbreak study $(STUDIES)
THREE := --methods vanilla exact partial --seeds 3

studies: setup  ## the runs of the results that are not there yet; STUDIES=--dry-run tells how many hours they take
	$(STUDY) grid-obstacles --settings grid-0 grid-20 grid-40
	$(STUDY) grid-reward --settings grid-10-reward --seeds 3
	$(STUDY) grid-slip --seeds 3
	$(STUDY) grid-slip --methods oracle-minority --seeds 2
	$(STUDY) manipulation --settings fetch-reach
	for ablation in routing actor trunks; do $(STUDY) ablation-$$ablation --settings fetch-reach --seeds 3 || exit; done
	$(STUDY) ablation-threshold --settings fetch-reach --seeds 3
	$(STUDY) locomotion --settings swimmer $(THREE) --steps 100000
	$(STUDY) locomotion --settings ant $(THREE) --steps 150000
	$(STUDY) manipulation --settings ur5e-reach $(THREE) --steps 100000
	$(STUDY) grid-paper
	$(STUDY) grid-coin
	$(STUDY) grid-floors --methods vanilla exact rpp partial partial-coin
	$(STUDY) propagation
	$(STUDY) predictor-steps
	$(STUDY) stability
	$(STUDY) unrouted

results: setup  ## check the committed results, and draw their figures and tables anew
	$(BIN)/symbreak report results --verify -o build/results.html --into README.md docs/reproduction.md
	$(BIN)/symbreak report results/grid-obstacles -o build/grid-obstacles.html --figures docs/figures/results
	$(BIN)/symbreak report $(addprefix results/,grid-reward grid-slip manipulation locomotion) -o build/others.html --figures docs/figures/results/others
	$(BIN)/symbreak theory grid-20-slip --run results/propagation/records/grid-20-slip/exact/seed-0 --out build/theory
	cp build/theory/error-propagation.png docs/figures/error-propagation.png

docs: setup  ## the pages of docs/ as HTML in build/docs
	$(BIN)/mkdocs build --quiet
	@echo "pages: build/docs/index.html"

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .cache
