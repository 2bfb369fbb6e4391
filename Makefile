# Two commands matter: `make up` runs Mainspring, `make test` tests it. Both set everything up first.
SHELL := /bin/bash
VENV  := .venv
PY    := $(VENV)/bin/python
ARGS  ?=
# Where it is set, every process of a test run would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup up test check fmt bench chaos bugs failover oracle storm deliveries breaks crashes surge walk timeline rules docs schema lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## install everything into .venv (run by the others)

$(VENV)/.ready: pyproject.toml requirements.txt tools/setup
	@tools/setup requirements.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.ready requirements-bench.txt
	@tools/setup requirements-bench.txt
	@touch $@

up: setup ## run the staffing marketplace on the embedded PostgreSQL (ARGS="--speed 600", ARGS="--help")
	@exec $(VENV)/bin/mainspring up --app staffing $(ARGS)

test: setup ## run all tests (ARGS="-k cancel")
	@tools/packages postgresql-15 pgbouncer rabbitmq-server
	@$(PY) -m pytest -n auto --dist worksteal $(ARGS)

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
	@$(PY) -m tests.chaos $(ARGS)

bugs: setup ## plant known bugs, one by one, and show that the tests catch each
	@$(PY) -m tests.chaos.bugs $(ARGS)

failover: setup ## kill the primary and promote its standby, five times, under load
	@$(PY) -m tests.surroundings.failover $(ARGS)

oracle: setup ## hold the rules of time to walked minutes, in every zone from 2020 to 2035 (about 6 minutes)
	@$(PY) -m tests.oracle $(ARGS)

storm: setup ## 5 schedulers under random kills, 100,000 instants: none twice, none missing
	@$(PY) -m tests.schedules.storm $(ARGS)

deliveries: setup ## 10,000 notifications, a fifth of the calls goes wrong: none lost, repeats counted (ARGS="--count 300")
	@$(PY) -m tests.senders.flood $(ARGS)

breaks: setup ## break the rules of staffing, one by one: each must turn a marked test red
	@$(PY) -m tests.staffing.breaks $(ARGS)

crashes: setup ## SIGKILL at every step of staffing's flows of money: another worker ends each as if nothing had happened
	@STAFFING_CRASHES=all $(PY) -m pytest -q -s tests/staffing/test_crashes.py $(ARGS)

surge: setup ## 10,000 bookings due at once: each charged once, 50 a second, within the pools (ARGS="--bookings 500")
	@$(PY) -m tests.staffing.surge $(ARGS)

walk: setup ## a random walk through the marketplace, checked after each step (ARGS="--steps 5000 --seed 7")
	@$(PY) -m tests.staffing.walk $(ARGS)

timeline: setup ## three weeks of the marketplace, three times, held to walked minutes (ARGS="--from 2026-03-02")
	@$(PY) -m tests.staffing.timeline $(ARGS)

rules: setup ## per ledger: rules with a passing test / all rules, and the missing ones
	@$(PY) tools/rules.py $(ARGS)

docs: setup ## build the documentation into build/site
	@$(PY) -m tools.site

schema: setup ## write db/schema.sql and docs/schema.md anew from the migrations
	@$(PY) -m tools.dump_schema
	@$(PY) -m tools.schema_page

lock: setup ## pin the requirements anew
	@tools/lock

clean: ## remove what setup and runs made
	rm -rf .venv .uv .data .mypy_cache .ruff_cache .hypothesis
