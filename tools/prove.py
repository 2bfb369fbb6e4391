"""Run the proofs that are too long for `make test`, one after another, and print what came of each.

Each is a target of the Makefile; what it prints goes to build/proofs/NAME.log.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROOFS = (
    "cases", "model", "tenancy", "fuzz", "browser", "bugs", "breaks", "crashes", "chaos", "killers", "failover",
    "nemesis", "storm", "deliveries", "surge", "outage", "outages", "walk", "timeline", "oracle",
)  # fmt: skip


def main(names: list[str]) -> int:
    if unknown := set(names) - set(PROOFS):
        sys.exit(f"prove: no such proof: {', '.join(sorted(unknown))}; there are {', '.join(PROOFS)}")
    logs = ROOT / "build" / "proofs"
    logs.mkdir(parents=True, exist_ok=True)
    failed = 0
    print(f"{'proof':<12}{'result':<10}{'seconds':>8}", flush=True)
    for name in names or PROOFS:
        began = time.monotonic()
        with (logs / f"{name}.log").open("w") as log:
            code = subprocess.run(["make", name, "ARGS="], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode
        failed += code != 0
        print(f"{name:<12}{'failed' if code else 'passed':<10}{time.monotonic() - began:>8.0f}", flush=True)
    if failed:
        print(f"what they said: {logs.relative_to(ROOT)}/")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
