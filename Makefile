.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-flink check bench fire clean servers

ENGINE ?= beam
ONLY ?=
PYTEST ?=
# Tests wait for servers most of the time: as many run at once as there are cores. Each process starts its own servers.
BESIDE := -n auto --dist worksteal

# Any Python 3.10 or later; PyFlink wants one below 3.13. A name on the PATH may be a shim that does not run: each is tried.
# The search is made at the first use and once.
first = $(shell for name in $(1); do $$name -c 'import ensurepip, sys, venv; sys.exit(not ($(2)))' 2>/dev/null && echo $$name && break; done)
ifndef PYTHON
PYTHON = $(eval PYTHON := $(call first,python3 python3.13 python3.12 python3.11 python3.10,sys.version_info >= (3, 10)))$(PYTHON)
endif
ifndef PYTHON_FLINK
PYTHON_FLINK = $(eval PYTHON_FLINK := $(call first,$(PYTHON) python3.12 python3.11 python3.10,(3, 10) <= sys.version_info < (3, 13)))$(PYTHON_FLINK)
endif
NO_PYTHON = echo 'No fitting Python with venv was found: set PYTHON= (or PYTHON_FLINK=), or install python3-venv' >&2; exit 1

# Stamps carry a checksum of what they stand for, so that a switch of branches or a deleted file counts as a change.
sum = $(firstword $(shell (ls $(1); cat $(1)) | cksum))
FOLDERS := package connectors transforms pipelines
SOURCES := $(sort $(shell find $(FOLDERS) -type f ! -name '*.pyc')) setup.py pyproject.toml MANIFEST.in README.md
DEPS := $(call sum,setup.py pyproject.toml Makefile)
CODE := $(call sum,$(SOURCES))

PIP = bin/python -m pip --disable-pip-version-check --quiet
BEAM := .venv
FLINK := .venv-flink
DEMO := .venv-demo-$(ENGINE)

# What goes into each environment: an engine at the version that is tested, then what is used beside it.
BEAM_ENGINE := 'apache-beam==2.77.*'
FLINK_ENGINE := 'apache-flink==2.3.0' 'apache-beam==2.61.*' 'redis==5.*'
$(BEAM)/%: NEEDS = '.[beam,cli,demo,dev,http,kafka,metrics,mysql,redis]' $(BEAM_ENGINE)
$(FLINK)/%: NEEDS = '.[beam,cli,demo,dev,flink,http,kafka,mysql,redis]' $(FLINK_ENGINE)
.venv-demo-beam/%: NEEDS = '.[demo,mysql,redis]' $(BEAM_ENGINE)
.venv-demo-flink/%: NEEDS = '.[demo,flink,mysql,redis]' $(FLINK_ENGINE)
$(FLINK)/% .venv-demo-flink/%: CHOSEN = $(PYTHON_FLINK)
CHOSEN = $(PYTHON)

# Where an engine or a driver matters, so that the second environment proves something that the first one did not.
# PyFlink changes Beam's coders and the environment of the process it runs in: the two never share one. Whole jobs have
# another one of their own, with the Java that they start.
BESIDE_FLINK := $(addprefix tests/,connectors contract integration unit/test_readme.py) $(wildcard tests/engines/test_beam*.py)
FLINK_JOBS := $(wildcard tests/engines/test_flink.py tests/engines/test_flink_*job*.py tests/engines/test_flink_cluster.py)
ON_FLINK := $(filter-out $(FLINK_JOBS),$(wildcard tests/engines/test_flink*.py))

help: ## Show what there is
	@echo 'oncesink: writes that happen once'
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo 'Options: ENGINE=beam|flink (demo), ONLY=group (bench, fire), QUICK=1 (fire), PYTEST="-k name" (test), PYTHON=, PYTHON_FLINK='

setup: $(BEAM)/project-$(CODE) $(FLINK)/project-$(CODE) ## Make .venv (newest Beam) and .venv-flink (Flink and its Beam)

demo: $(DEMO)/project-$(CODE) ## Deliver real flights twice and more, kill the process, count the rows (ENGINE=beam|flink)
	@$(DEMO)/bin/oncesink demo --engine $(ENGINE)

test: servers setup ## Run all tests on real servers, on both engines' versions
	$(BEAM)/bin/python -m pytest $(BESIDE) $(PYTEST)
	$(FLINK)/bin/python -m pytest $(BESIDE) $(BESIDE_FLINK) $(PYTEST)
	$(FLINK)/bin/python -m pytest $(ON_FLINK) $(PYTEST)
	QUICK=1 FLINK_PYTHON=$(abspath $(FLINK)/bin/python) $(BEAM)/bin/python -m tests.fire
	$(FLINK)/bin/python -m pytest $(BESIDE) $(FLINK_JOBS) $(PYTEST)

test-flink: servers $(FLINK)/project-$(CODE) ## Run only the jobs on Flink's mini cluster and on a stand-alone one
	$(FLINK)/bin/python -m pytest $(BESIDE) $(FLINK_JOBS) $(PYTEST)

check: $(BEAM)/project-$(CODE) ## Lint, format, types of the installed package, import fences
	$(BEAM)/bin/ruff check --output-format concise .
	$(BEAM)/bin/ruff format --check .
	$(BEAM)/bin/python -m mypy -p oncesink -p tests -p benchmarks
	$(BEAM)/bin/python -m pytest -q tests/packaging/test_fences.py

bench: servers $(BEAM)/project-$(CODE) ## Measure side by side with what one would take instead (ONLY=filter|gate|mysql|beam)
	@$(BEAM)/bin/python -m benchmarks.run $(ONLY)

fire: servers setup ## Simulate, kill, cut and delay on purpose; nothing may be lost or doubled (QUICK=1, ONLY=scenario)
	@FLINK_PYTHON=$(abspath $(FLINK)/bin/python) $(BEAM)/bin/python -m tests.fire $(ONLY)

clean: ## Remove environments, builds and caches
	rm -rf .venv .venv-* build dist oncesink.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

servers:
	@bash .ci/servers

# Dependencies first (with the project, since only its own metadata says what it needs), the project whenever it changed.
.PRECIOUS: %/deps-$(DEPS)
%/deps-$(DEPS):
	@test -n '$(CHOSEN)' || { $(NO_PYTHON); }
	@echo 'Installing into $(@D)'
	@test -x $(@D)/bin/python || $(CHOSEN) -m venv $(@D)
	@rm -rf build $(@D)/deps-* $(@D)/project-*
	@$(@D)/$(PIP) install --upgrade pip 'setuptools>=77'
	@$(@D)/$(PIP) install $(NEEDS)
	@touch $@

%/project-$(CODE): %/deps-$(DEPS)
	@rm -rf build $(@D)/project-*
	@$(@D)/$(PIP) install --no-deps --no-build-isolation --force-reinstall .
	@rm -rf build oncesink.egg-info
	@touch $@
