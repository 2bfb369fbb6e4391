import os, time, random
from tests.model.machine import run_machine
def test_run(database):
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print("seed", seed); t = time.time()
    ran = run_machine(database.dsn, seed=seed, max_examples=int(os.environ.get("N", 20)), steps=int(os.environ.get("STEPS", 100)), shrink=bool(os.environ.get("SHRINK")))
    print(ran, ran.total(), time.time() - t)

import cProfile, pstats
def test_prof(database):
    pr = cProfile.Profile(); pr.enable()
    run_machine(database.dsn, seed=5, max_examples=10, steps=100)
    pr.disable(); pstats.Stats(pr).sort_stats("cumtime").print_stats(45)
