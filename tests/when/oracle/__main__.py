"""Holds the rules of time to walked minutes, in every zone: `make oracle`.

Complete are, in every zone of tzdata and from 2020 to 2035:

- two days before and after each change of the clocks, walked minute by minute, all rules under all policies;
- the quiet time between, in which the zone's clock is looked at every hour and the local calendar tells the rest: every
  tick of the rules with few ticks, under the default policy, as no other can matter.

Besides, some ordinary weeks of each zone are walked minute by minute for all rules, and in a few zones every minute of
the sixteen years.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from typing import TextIO
from zoneinfo import available_timezones

from tests.when.oracle.brute import minute
from tests.when.oracle.compare import Verdict, compare, compare_plainly, rules

YEARS = range(2020, 2036)
#: Walked minute by minute: jumps at midnight, of half an hour and of two hours, at Ramadan; no change at all.
PLAIN = ("America/New_York", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca", "UTC")
WEEKS = 4
SHOWN = 20

Work = tuple[str, int | None, int]


def run(work: Work) -> tuple[Work, Verdict]:
    zone, year, seed = work
    if year is not None:
        return work, compare_plainly(zone, minute(year), minute(year + 1))
    rng = random.Random(f"{seed} {zone}")
    return work, compare(zone, minute(YEARS.start), minute(YEARS.stop), rng, WEEKS)


def say(line: str, stream: TextIO = sys.stdout) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make oracle", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("zones", nargs="*", help="these zones only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the weeks walked")
    options = parser.parse_args()
    zones = options.zones or sorted(available_timezones() - {"localtime"})
    works: list[Work] = [(zone, year, 0) for zone in PLAIN if zone in zones for year in YEARS]
    works += [(zone, None, options.seed) for zone in zones]
    began, done, ticks, wrong = time.monotonic(), 0, 0, 0
    say(f"seed={options.seed}")
    with multiprocessing.Pool(options.processes) as pool:
        for (zone, year, _), verdict in pool.imap_unordered(run, works):
            done, ticks, wrong = done + 1, ticks + verdict.ticks, wrong + len(verdict.wrong)
            for line in verdict.wrong[:SHOWN]:
                say(line)
            if done % 20 == 0 or done == len(works):
                spent = time.monotonic() - began
                say(f"{done}/{len(works)}: {zone}, {year or 'all years'}, after {spent:.0f} s", sys.stderr)
    say(f"zones={len(zones)} rules={len(rules('UTC'))} instants={ticks} wrong={wrong}")
    return 1 if wrong or not ticks else 0


if __name__ == "__main__":
    sys.exit(main())
