# Commands for work on Karrot. They install only packages that requirements/*.txt pins by hash, and only by pip, so that
# your pip configuration (index, certificates, proxy) is the only one that counts.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
# More arguments for the command of a target: make demo ARGS="--port 8080 --groups 200", make test ARGS="-k incident"
ARGS ?=
BROKERS ?= 1
KAFKA_VERSION ?= 4.1.2

BIN := .venv/bin
STAMPS := .venv/stamps
NEED_NO_SERVERS := not e2e and not image and not apiserver and not release
# Tests of services mostly wait: three workers use two cores better. With Java, a third one would also start a Spark session.
PYTEST := pytest -n $(if $(JAVA_HOME)$(shell command -v java),2,3) --dist worksteal -m "$(NEED_NO_SERVERS) and not deep"

.PHONY: demo test test-checkout test-wheel fresh lint install bench docs requirements help clean e2e stack-up stack-down fuzz soak nemesis history
.PHONY: deep test-deep real-server stores man mutants truth golden
.PHONY: image screenshots chart chain cluster dist test-release kube-apiserver site audit

demo: $(STAMPS)/service ## Karrot with a simulated Burrow: a page with moving lag; Ctrl-C ends it
	@exec $(BIN)/karrot demo $(ARGS)

# The tests of the wheel run even if those of the checkout fail. The last lines say how each half ended: conftest.py writes
# them to the files, unless the half breaks down before.
SUMMARY = build/tests-of-the-$$half.txt
test: ## Every test that needs no other servers, first on the checkout and then on the built wheel
	@failed=0; mkdir -p build; halves="checkout $(if $(filter tests/%,$(ARGS)),,wheel)"; \
	for half in $$halves; do echo "They did not end: see above." >$(SUMMARY); \
		TESTS_SUMMARY="$(CURDIR)/$(SUMMARY)" $(MAKE) --no-print-directory test-$$half || failed=1; done; \
	for half in $$halves; do printf '\n== The tests of the %s:\n' $$half; cat $(SUMMARY); done; exit $$failed

test-checkout: $(STAMPS)/dev
	$(BIN)/$(PYTEST) $(ARGS)

test-deep: $(STAMPS)/dev ## The tests of the checkout again, with those that take minutes and with random examples (part of make deep)
	$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile=random -m "$(NEED_NO_SERVERS)" $(ARGS)

SUITES ?=
deep: ## Every check that takes too long for .ci/run; SUITES="e2e image": only these
	.ci/deep $(SUITES)

# A wheel can lack a file, a template or an entry point. These tests detect that; all others would test the same code twice.
WHEEL_TESTS := tests/test_package.py tests/test_wiring.py tests/cli/render/test_render.py \
	tests/web/test_pages.py tests/web/pages/test_runbooks.py \
	tests/demo/test_demo.py::test_the_demo_shows_changing_lag_and_what_cloudwatch_got_and_leaves_nothing_behind_when_it_stops

# The wheel has an environment of its own, which takes all other packages from .venv. Python ignores the .pth files of a
# directory that a .pth file names, so this environment does not see the checkout. The tests run in another directory and
# with a safe path, so that the checkout's karrot/ cannot be imported by chance.
SITE_PACKAGES = bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

test-wheel: $(STAMPS)/dev .venv-wheel/stamps/environment
	@rm -rf build/wheel
	$(BIN)/hatchling build -t wheel -d build/wheel
	.venv-wheel/bin/python -m pip install -q --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheel/karrot_burrow-*.whl
	@.venv/$(SITE_PACKAGES) >"$$(.venv-wheel/$(SITE_PACKAGES))/packages-of-the-checkout.pth"
	@directory=$$(mktemp -d); trap 'rm -rf "$$directory"' EXIT; cd "$$directory"; SECONDS=0; root="$(CURDIR)"; tests=($(WHEEL_TESTS)); \
	PYTHONSAFEPATH=1 TESTS_NEED_INSTALLED=1 "$$root"/.venv-wheel/bin/python -m $(PYTEST) \
		-c "$$root/pyproject.toml" --rootdir "$$root" $(ARGS) "$${tests[@]/#/$$root/}" \
		$(if $(ARGS),|| [ $$? -eq 5 ]); \
	echo "The tests of the built wheel took $$SECONDS s."

# FRESH=all also tries the newest supported Python, in Debian's next release.
fresh: ## The README's two commands in a minimal Debian, as a normal user (needs root, debootstrap); FRESH=all: a newer Python too
	$(PYTHON) tools/fresh.py $(if $(filter all,$(FRESH)),--release bookworm --release forky) $(ARGS)

ACTIONLINT := build/bin/actionlint

lint: $(STAMPS)/dev ## Check style, types, import contracts, spelling, generated documentation, requirements and the budget of lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	@test -x $(ACTIONLINT) || GOBIN=$(CURDIR)/build/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 \
		|| echo "actionlint is LEFT OUT: it needs Go and its modules"
	@test ! -x $(ACTIONLINT) || $(ACTIONLINT)
	$(BIN)/pytest -q tests/test_docs.py tests/test_house.py
	$(BIN)/python tools/budget.py
	@! grep -nE '://|--(extra-)?index-url|--find-links' requirements/*.txt \
		|| { echo "requirements/*.txt must not name a package index" >&2; exit 1; }

# These files contain the pins of all others. Nothing is installed, because the files name every package with its hash.
AUDITED := $(addprefix requirements/,all.txt spark-build.txt site.txt fuzz.txt audit.txt uv.txt)

audit: $(STAMPS)/audit ## Look for advisories about every pinned package (asks the advisory database about each of them)
	$(BIN)/pip-audit --strict --require-hashes --disable-pip $(addprefix -r ,$(AUDITED)) $(ARGS)

install: $(STAMPS)/all ## Make .venv with every extra and every tool

NOT_IN_BENCH := benchmarks/crash.py benchmarks/failover.py benchmarks/nemesis.py benchmarks/soak.py benchmarks/hostile.py benchmarks/fuzz.py benchmarks/offsets_stream.py benchmarks/pipeline_kills.py benchmarks/pipeline_cpu.py benchmarks/readers_beside_writers.py benchmarks/verdict_delay.py

bench: $(STAMPS)/dev ## Run the benchmarks in benchmarks/, one after the other
	@for each in $(filter-out $(NOT_IN_BENCH),$(wildcard benchmarks/*.py)); do echo "== $$each"; PYTHONPATH=tests $(BIN)/python "$$each" $(ARGS); done

docs: $(STAMPS)/dev ## Write docs/reference/ and the Grafana dashboards from the code
	$(BIN)/python tools/reference.py
	$(BIN)/python -m tools.dashboards

site: $(STAMPS)/site ## Build the documentation site from docs/ into build/site, and check all its links
	$(BIN)/python -m tools.docs_site $(ARGS)

# uv compiles the files for every platform at once; pip cannot. It does not read pip's configuration: if you have a
# package index of your own, set UV_DEFAULT_INDEX.
COMPILE := UV_SYSTEM_CERTS=true $(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-header

requirements: $(STAMPS)/uv ## Compile requirements/*.txt from pyproject.toml; ARGS=--upgrade for newer versions
	$(COMPILE) $(ARGS) pyproject.toml -o requirements/service.txt
	$(COMPILE) $(ARGS) --group build -c requirements/service.txt -o requirements/build.txt
	$(COMPILE) $(ARGS) pyproject.toml --group dev -c requirements/service.txt -c requirements/build.txt -o requirements/dev.txt
	$(COMPILE) $(ARGS) pyproject.toml --group dev --all-extras -c requirements/dev.txt -o requirements/all.txt
	$(COMPILE) $(ARGS) pyproject.toml --extra kafka --extra postgres --extra notify -c requirements/all.txt -o requirements/image.txt
	$(COMPILE) $(ARGS) pyproject.toml --extra kafka --extra spark --extra history -c requirements/all.txt -o requirements/pipeline.txt
	$(COMPILE) $(ARGS) --group spark-build -o requirements/spark-build.txt
	$(COMPILE) $(ARGS) --group spark-worker -c requirements/all.txt -o requirements/spark-worker.txt
	$(COMPILE) $(ARGS) --group fuzz -o requirements/fuzz.txt
	$(COMPILE) $(ARGS) --group site -c requirements/all.txt -o requirements/site.txt
	$(COMPILE) $(ARGS) --group audit -c requirements/all.txt -o requirements/audit.txt
	$(COMPILE) $(ARGS) --group uv -o requirements/uv.txt

STACK := PYTHONPATH=tests $(BIN)/python -m e2e.stack

# Only the files that have such tests, because collecting all others takes as long as starting Kafka.
E2E_TESTS = $(filter-out %/test_cluster.py %/test_pipeline_stores.py,$(shell grep -rl --include='test_*.py' 'mark\.e2e' tests))
WITH_STACK = prometheus=$$($(STACK) fetch); PROMETHEUS_BIN=$$prometheus

e2e: $(STAMPS)/dev ## The tests with real Kafka, ZooKeeper, Prometheus and, if BURROW_BIN or the PATH has one, Burrow
	$(WITH_STACK) $(BIN)/pytest -m e2e -n 2 --dist loadfile $(ARGS) $(E2E_TESTS)

real-server: $(STAMPS)/dev ## The part of make e2e that .ci/run needs: Kafka, watch and Prometheus, with one broker
	$(WITH_STACK) $(BIN)/python tools/real_server.py $(ARGS)

cluster: $(STAMPS)/dev ## The pipeline on a Spark cluster of its own: a master, two workers, every command by spark-submit, kill -9
	$(BIN)/pytest -m e2e -rA --show-capture=no $(ARGS) tests/e2e/test_cluster.py

stores: $(STAMPS)/dev ## The pipeline on S3 and on HDFS
	$(BIN)/pytest -m e2e $(ARGS) tests/e2e/test_pipeline_stores.py

chain: $(STAMPS)/dev ## The chain of 2017 on a real broker, step by step: commits, Spark, JSON topic, minutes, an alert that fires and clears
	PYTHONPATH=tests $(BIN)/python -m e2e.chain

truth: $(STAMPS)/dev ## No false alarm and no silence: healthy groups that look odd and groups with a planted fault on a real broker; ARGS="--minutes 20"
	$(BIN)/pytest -m e2e tests/e2e/test_same_states.py
	PYTHONPATH=tests $(BIN)/python -m e2e.truth $(ARGS)

golden: $(STAMPS)/dev ## What Karrot puts out for a recorded day, as text files to compare with diff -r; ARGS="--help"
	PYTHONPATH=tests $(BIN)/python -m golden $(ARGS)

stack-up: $(STAMPS)/dev ## Start the servers of make e2e until make stack-down; BROKERS=3, KAFKA_VERSION=4.3.1
	@$(STACK) up --brokers $(BROKERS) --kafka $(KAFKA_VERSION) $(ARGS)

stack-down: $(STAMPS)/dev ## Stop these servers; their logs stay until the next start
	@$(STACK) down

fuzz: $(STAMPS)/fuzz ## Fuzz the parser for five minutes, guided by coverage; ARGS="--seconds 3600" for more (Linux)
	PYTHONPATH=tests $(BIN)/python benchmarks/fuzz.py $(ARGS)

soak: $(STAMPS)/dev ## Kills under load, hostile input, a CloudWatch outage, then the memory over eight hours of load; ARGS="--minutes 3" for a trial
	PYTHONPATH=tests $(BIN)/python benchmarks/crash.py
	PYTHONPATH=tests $(BIN)/python benchmarks/failover.py $(if $(ARGS),--kills 1 --database-kills 1 --promotions 1 --freeze 15 --swallow 15)
	PYTHONPATH=tests $(BIN)/python benchmarks/hostile.py
	PYTHONPATH=tests $(BIN)/python benchmarks/pipeline_kills.py $(if $(ARGS),--kills 2)
	PYTHONPATH=tests $(BIN)/python benchmarks/readers_beside_writers.py $(if $(ARGS),--rounds 6 --days 1 --batches 200)
	TESTS_STREAMS=$(if $(ARGS),500,10000) $(BIN)/pytest -q -n 2 --timeout 0 tests/closed_loop/test_never_a_violation.py
	PYTHONPATH=tests $(BIN)/python benchmarks/cloudwatch.py $(if $(ARGS),,--seconds 120 --rounds 1 --outage 600)
	PYTHONPATH=tests $(BIN)/python benchmarks/soak.py $(ARGS)

nemesis: $(STAMPS)/dev ## Break two replicas and their PostgreSQL at random, and count every event; ARGS="--seed 7 --schedules 1" for one schedule
	PYTHONPATH=tests $(BIN)/python benchmarks/nemesis.py --control --schedules 1
	PYTHONPATH=tests $(BIN)/python benchmarks/nemesis.py $(ARGS)

mutants: $(STAMPS)/dev ## Plant faults in copies of the product: which do the tests notice? ARGS="--only signals" for one module
	@$(BIN)/python tools/mutants.py $(ARGS)

history: $(STAMPS)/dev ## Run the pipeline on a simulated week of 100 groups, and render its report; ARGS="--groups 10 --days 1" for less
	PYTHONPATH=tests $(BIN)/python tools/history.py $(ARGS)

screenshots: $(STAMPS)/dev ## Take a picture of every page, in every state, and of the report (needs chromium); ARGS=--docs also for docs/images
	PYTHONPATH=tests $(BIN)/python tools/screenshots.py $(ARGS)

dist: $(STAMPS)/dev ## Build the files of a release into dist/ twice, and compare the bytes: wheel, sdist, charts, bill of materials, notes
	$(BIN)/python -m tools.dist $(ARGS)

test-release: $(STAMPS)/dev ## Test the files that make dist builds, and install the wheel with each extra
	$(BIN)/pytest -n 2 -m release $(ARGS) tests/test_dist.py tests/test_install.py

man: $(STAMPS)/dev ## Write a man page for each command into dist/man/man1
	$(BIN)/python tools/man_pages.py dist/man/man1

image: $(STAMPS)/dev ## Build the container image and run it read-only (Debian, root); ARGS="--with-pipeline": Spark's too
	$(BIN)/pytest -m image tests/image $(ARGS)

KUBE_SCORE := build/bin/kube-score

chart: $(STAMPS)/dev ## Test the Helm charts: documents, every shape, kube-score, a real API server if make kube-apiserver built one
	$(BIN)/python tools/chart_docs.py --check
	@test -x $(KUBE_SCORE) || GOBIN=$(CURDIR)/build/bin go install github.com/zegl/kube-score/cmd/kube-score@v1.20.0 \
		|| echo "kube-score is LEFT OUT: it needs Go and its modules"
	PATH="$(CURDIR)/build/bin:$$PATH" $(BIN)/pytest -n 2 --dist loadscope -rs tests/chart $(ARGS)

kube-apiserver: $(STAMPS)/dev ## Compile a kube-apiserver for make chart, once: needs six minutes of two cores and Go 1.26
	PYTHONPATH=tests $(BIN)/python -m support.kubernetes.kube_apiserver build

help: ## Show this list
	@awk -F ':[^#]*## ' '/^[a-z0-9-]+:[^#]*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean: ## Remove all files that the targets made, the environments too
	rm -rf .venv .venv-wheel build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find karrot tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# The environments. Packages are installed only if a stamp is older than the files that it was made from.

# A stamp, and not bin/python, marks a complete environment, because an unfinished one has a bin/python too.
.venv/stamps/environment .venv-wheel/stamps/environment:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Karrot needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@if [ -L $(@D:/stamps=) ] || { [ -e $(@D:/stamps=) ] && [ ! -d $(@D) ]; }; then \
		echo "$(@D:/stamps=) was not made by this Makefile: move it away" >&2; exit 1; fi
	@rm -rf $(@D:/stamps=) && mkdir -p $(@D)
	$(PYTHON) -m venv $(@D:/stamps=)
	@touch $@

# The files name every package that is needed, so pip resolves nothing. PySpark is published only as source: the pinned
# setuptools of build.txt builds its wheel.
INSTALL := $(BIN)/python -m pip install -q --no-compile --disable-pip-version-check --no-deps --no-build-isolation --use-pep517 --require-hashes

$(STAMPS)/service: requirements/service.txt requirements/build.txt pyproject.toml | $(STAMPS)/environment
	$(INSTALL) -r requirements/service.txt -r requirements/build.txt
	@# Before version 2.0 the distribution was called karrot; an environment from then would list each reporter twice.
	$(BIN)/python -m pip uninstall -q -y --disable-pip-version-check karrot 2>/dev/null
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@mkdir -p $(@D) && touch $@

$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/service
	$(INSTALL) -r requirements/dev.txt
	@mkdir -p $(@D) && touch $@

$(STAMPS)/uv: requirements/uv.txt $(STAMPS)/dev
	$(INSTALL) -r requirements/uv.txt
	@mkdir -p $(@D) && touch $@

$(STAMPS)/fuzz: requirements/fuzz.txt $(STAMPS)/dev
	$(INSTALL) -r requirements/fuzz.txt
	@mkdir -p $(@D) && touch $@

$(STAMPS)/site: requirements/site.txt $(STAMPS)/dev
	$(INSTALL) -r requirements/site.txt
	@mkdir -p $(@D) && touch $@

$(STAMPS)/audit: requirements/audit.txt $(STAMPS)/dev
	$(INSTALL) -r requirements/audit.txt
	@mkdir -p $(@D) && touch $@

$(STAMPS)/all: requirements/all.txt $(STAMPS)/dev
	$(INSTALL) -r requirements/all.txt
	@mkdir -p $(@D) && touch $@
