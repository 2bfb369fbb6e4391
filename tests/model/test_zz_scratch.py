import os, time, random
from tests.model.machine import run_machine
def test_run(database):
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print("seed", seed); t = time.time()
    ran = run_machine(database.dsn, seed=seed, max_examples=int(os.environ.get("N", 20)), steps=int(os.environ.get("STEPS", 100)), shrink=bool(os.environ.get("SHRINK")))
    print(ran, ran.total(), time.time() - t)
