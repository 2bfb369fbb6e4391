# Two commands matter: `make up` runs Mainspring, `make test` tests it. Both set everything up first.
SHELL := /bin/bash
VENV  := .venv
PY    := $(VENV)/bin/python
ARGS  ?=
# Where it is set, every process of a test run would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup up test cases costs prove model tenancy fuzz browser check fmt bench chaos nemesis bugs killers failover oracle storm deliveries breaks crashes surge outage outages walk timeline rules docs examples schema texts lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## install everything into .venv (run by the others)

$(VENV)/.ready: pyproject.toml apps/pyproject.toml requirements.txt tools/setup
	@tools/setup requirements.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.ready requirements-bench.txt
	@tools/setup requirements-bench.txt
	@touch $@

up: setup ## run the staffing marketplace on the embedded PostgreSQL (ARGS="--speed 600", ARGS="--help")
	@exec $(VENV)/bin/mainspring up --app staffing $(ARGS)

test: setup ## run the tests that fit into five minutes, drawn by a seed, or those you name (ARGS="-k cancel")
	@tools/packages postgresql-15 pgbouncer rabbitmq-server
	@$(PY) -m pytest -n auto --dist worksteal --durations=20 $(ARGS)

cases: setup ## all tests with all their cases: `make test` draws some by its seed
	@tools/packages postgresql-15 pgbouncer rabbitmq-server
	@CASES=all $(PY) -m pytest -n auto --dist worksteal --durations=20 $(ARGS)

costs: setup ## all tests with all their cases, on an idle machine, and write to tests/costs.txt what each costs
	@tools/packages postgresql-15 pgbouncer rabbitmq-server
	@CASES=all COSTS=write $(PY) -m pytest -n auto --dist worksteal $(ARGS)

prove: setup ## run every proof that has a target of its own, one after another (ARGS="chaos walk")
	@$(PY) -m tools.prove $(ARGS)

check: setup ## formatting, lint, types, import contract
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

fmt: setup ## format and fix
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(VENV)/.bench ## benchmarks as ratios, written to bench/results/latest.json (ARGS=--quick)
	@tools/packages postgresql-15 pgbouncer rabbitmq-server
	@$(PY) -m bench $(ARGS)

chaos: setup ## the full crash test: SIGKILL, SIGSTOP and a dying PostgreSQL under 20,000 jobs
	@$(PY) -m tests.proofs.chaos $(ARGS)

nemesis: setup ## every feature, hostile jobs and every fault for 10 minutes: nothing lost, nothing stuck (ARGS="--seconds 60 --seed 7")
	@$(PY) -m tests.proofs.nemesis $(ARGS)

bugs: setup ## plant known bugs, one by one, and show that the tests catch each
	@$(PY) -m tests.proofs.chaos.bugs $(ARGS)

killers: setup ## jobs that kill their worker among harmless ones, a SIGKILL and an outage: nobody else pays
	@$(PY) -m tests.proofs.chaos.killers $(ARGS)

failover: setup ## kill the primary and promote its standby, five times, under load
	@$(PY) -m tests.proofs.surroundings.failover $(ARGS)

oracle: setup ## hold the rules of time to walked minutes, in every zone from 2020 to 2035 (about 6 minutes)
	@$(PY) -m tests.when.oracle $(ARGS)

storm: setup ## 5 schedulers under random kills, 100,000 instants: none twice, none missing
	@$(PY) -m tests.worker.schedules.storm $(ARGS)

deliveries: setup ## 10,000 notifications, a fifth of the calls goes wrong: none lost, repeats counted (ARGS="--count 300")
	@$(PY) -m tests.contrib.senders.flood $(ARGS)

breaks: setup ## break the rules of staffing, one by one: each must turn a marked test red
	@$(PY) -m tests.apps.staffing.breaks $(ARGS)

crashes: setup ## SIGKILL at every step of staffing's flows of money: another worker ends each as if nothing had happened
	@STAFFING_CRASHES=all $(PY) -m pytest -q -s tests/apps/staffing/test_crashes.py $(ARGS)

surge: setup ## 10,000 bookings due at once: each charged once, 50 a second, within the pools (ARGS="--bookings 500")
	@$(PY) -m tests.apps.staffing.surge $(ARGS)

outage: setup ## 20,000 jobs behind an open breaker: what waiting costs, and how soon all run when it closes (about a minute)
	@$(PY) -m bench.breakers $(ARGS)

outages: setup ## Stripe is away from a minute to 30 hours over 1 to 200 bookings: each charged once, nobody blamed (about 10 minutes)
	@$(PY) -m tests.apps.staffing.outages $(ARGS)

walk: setup ## a random walk through the marketplace, checked after each step (ARGS="--steps 5000 --seed 7")
	@$(PY) -m tests.apps.staffing.walk $(ARGS)

timeline: setup ## three weeks of the marketplace, three times, held to walked minutes (ARGS="--from 2026-03-02")
	@$(PY) -m tests.apps.staffing.timeline $(ARGS)

model: setup ## 10,000 random steps of several workers against the model
	@MODEL_STEPS=10000 $(PY) -m pytest -q -n auto tests/proofs/model $(ARGS)

tenancy: setup ## each role over every table, view and function, on the newest server and on the oldest
	@tools/packages postgresql-15
	@TENANCY=all $(PY) -m pytest -q -n auto tests/db/tenancy $(ARGS)

fuzz: setup ## 200 requests to each operation of the HTTP API, as schemathesis makes them of its OpenAPI document
	@CASES=all FUZZ_EXAMPLES=200 $(PY) -m pytest -q -n auto tests/web/api/test_fuzz.py $(ARGS)

browser: setup ## a hostile page in a real browser, where somebody is signed in: it changes nothing and reads nothing
	@tools/packages chromium
	@BROWSER=needed $(PY) -m pytest -q tests/web/browser $(ARGS)

rules: setup ## per ledger: rules with a passing test / all rules, and the missing ones
	@$(PY) tools/rules.py $(ARGS)

docs: setup ## build the documentation into build/site
	@$(PY) -m tools.site

examples: setup ## build both wheels, use them in a fresh environment apart from here, resolve and type-check for newer Pythons
	@$(PY) -m tools.examples

schema: setup ## write docs/schema.md and the records of signatures anew from db/tables and db/verbs
	@$(PY) -m tools.signatures
	@$(PY) -m tools.schema_page

texts: setup ## bring the catalogues of applications up to date with their English texts
	@$(PY) -m tools.texts

lock: setup ## pin the requirements anew
	@tools/lock

clean: ## remove what setup and runs made
	rm -rf .venv .uv .data .mypy_cache .ruff_cache .hypothesis
