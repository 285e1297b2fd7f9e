# Two commands do everything on a fresh machine: `make run` and `make test`. While you work,
# `make check` takes a minute.
PYTHON ?= python3
VENV := .venv
comma := ,
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# A service on the CPU needs no torch; on a GPU it does, and so do the tests. torch for Linux brings
# CUDA along, gigabytes of it: without a GPU it comes from an index that has it without, if that answers.
GPU := $(shell command -v nvidia-smi)
TORCH_INDEX := https://download.pytorch.org/whl/cpu
TORCH_PIP = $(PIP) $$([ "$(GPU)" ] || ! curl --fail --silent --head --max-time 3 --output /dev/null \
  $(TORCH_INDEX)/torch/ || echo --extra-index-url $(TORCH_INDEX))
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.PHONY: run demo check test nightly lint audit unit docs manifests benchmarks dist images version clean

# Any setting may be given: `make run TURNWISE_PORT=9000`.
run: export TURNWISE_DEFAULT_POOL ?= examples/replies.jsonl
run: $(VENV)/.installed
	@exec $(BIN)/turnwise serve

# A service of its own with three pools; its console tells a story of two minutes.
demo: $(VENV)/.installed
	@exec $(BIN)/python examples/demo

check: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory --jobs 2 $(filter --%,$(.FEATURES:output-sync=--output-sync=target)) lint unit

unit: $(VENV)/.installed-test
	@$(BIN)/pytest -q -n logical --ignore tests/service -m "not live and not train and not browser and not docs and not deploy and not nightly"

test: $(VENV)/.installed-test lint
	$(BIN)/pytest

# What takes long and finds little that `make test` does not.
nightly: $(VENV)/.installed-test
	$(BIN)/pytest -m nightly -k "not (toy and replicas)"
	$(BIN)/pytest -m "hypothesis and not nightly" --hypothesis-profile nightly
	$(BIN)/pytest -m nightly -k "toy and replicas" -n 0 # it kills the only Milvus that may run

lint: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Known holes in the packages of constraints.txt. It asks PyPI, so it is no part of `make test`.
audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

# The documentation as a site, to read or to put on any web server.
docs: $(VENV)/.installed-docs
	$(BIN)/zensical build --strict
	@echo "Open build/site/index.html in a browser."

# The resources for kustomize, from the chart.
manifests: $(VENV)/.installed-test
	$(BIN)/python k8s/render.py

# A stamp for each set of packages: what is in place is not installed again.
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing Turnwise into $(VENV), once."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[server$(if $(GPU),$(comma)encoder)]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "Installing what the tests need into $(VENV)."
	@$(TORCH_PIP) --editable '.[test]'
	@touch $@

$(VENV)/.installed-release: $(VENV)/.installed
	@echo "Installing what a release needs into $(VENV)."
	@$(PIP) --editable '.[release]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing what the documentation needs into $(VENV)."
	@$(PIP) --editable '.[docs]'
	@touch $@

# What a release publishes besides the images, in build/dist: packages for Python and Node, the chart,
# and a list of the packages that a service is made of (SBOM).
DIST := build/dist
dist: $(VENV)/.installed-release
	rm -rf build && mkdir -p $(DIST)
	$(BIN)/python -m build --outdir $(DIST)/python
	cd clients/typescript && npm ci && npm pack --pack-destination ../../build
	mv build/turnwise-$(VERSION).tgz $(DIST)/turnwise-node-$(VERSION).tgz
	$(BIN)/python -c "import helm_python; helm_python.package('k8s/chart', destination='build')"
	mv build/turnwise-$(VERSION).tgz $(DIST)/turnwise-chart-$(VERSION).tgz
	$(PYTHON) -m venv build/service
	build/service/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt "$$(echo $(DIST)/python/*.whl)[server]"
	$(BIN)/cyclonedx-py environment build/service/bin/python --pyproject pyproject.toml \
	  --output-reproducible --output-file $(DIST)/turnwise-$(VERSION).cdx.json

# The images for the CPU and the GPU, for the platform of this machine: to emulate another takes long.
IMAGE := turnwise
TAG := $(VERSION)
BASE := $(shell sed -n 's/^ARG PYTHON=//p' docker/Dockerfile)
BUILD := docker build
images: LABELS = $(foreach label,version=$(VERSION) revision=$(shell git rev-parse HEAD) \
  base.name=docker.io/library/python:$(BASE) $(SOURCE:%=source=%),--label org.opencontainers.image.$(label))
images:
	$(BUILD) --file docker/Dockerfile --build-arg PYTHON=$(BASE) $(LABELS) \
	  --tag $(IMAGE):$(TAG) .
	$(BUILD) --file docker/Dockerfile --build-arg PYTHON=$(BASE) $(LABELS) \
	  --target cuda --build-arg EXTRAS=replica,encoder --tag $(IMAGE):$(TAG)-cuda .

version:
	@echo $(VERSION)

# The figures of the README: some 25 minutes on a machine that does nothing else. The published
# library is installed without its dependencies, which are old.
RUNS := runs/benchmarks
benchmarks: $(VENV)/.installed-test
	@$(PIP) --no-deps triple-encoders
	@$(PIP) --editable '.[bench]'
	rm -rf $(RUNS)
	$(BIN)/python -m benchmarks.turn --contexts 10 --out $(RUNS)/turn.json
	$(BIN)/python -m benchmarks.load --out $(RUNS)/load.json
	$(BIN)/python -m benchmarks.peer --out $(RUNS)/peer.json
	$(BIN)/python -m benchmarks.heads --out $(RUNS)/heads.json
	$(BIN)/python -m benchmarks.limits --sizes 1000 100000 --out $(RUNS)/limits.json
	$(BIN)/python -m benchmarks.overload --out $(RUNS)/overload.json
	$(BIN)/python -m benchmarks.soak --minutes 5 --out $(RUNS)/soak.json
	$(BIN)/python -m benchmarks.results $(RUNS)/*.json

clean:
	rm -rf $(VENV) build *.egg-info
