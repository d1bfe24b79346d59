"""A trust harness: random workloads through the engine, step by step, against an oracle that runs each request alone.

scripted.py    a fake model whose next token depends on every piece of bookkeeping
words.py       a decoder for made-up vocabularies, with characters split over ids
case.py        one workload as plain data, drawn from a seed
oracle.py      what a request must come to, from its own tokens alone
audit.py       what must hold before, inside and after every step
faults.py      what breaks on purpose
driver.py      runs a case: arrivals, aborts, faults, steps
shrink.py      makes a failing case small
soak.py        many seeds on all cores:                `python -m tests.harness.soak --seeds 2000`
mutate.py      plants faults in a copy of the core:    `python -m tests.harness.mutate`
overhead.py    what a step costs without its model:    `python -m tests.harness.overhead`
precision.py   where bfloat16 leaves float32, and why: `python -m tests.harness.precision`
"""
