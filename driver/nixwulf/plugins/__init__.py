"""Engines, benchmarks, gates, meters and power switches: a file or folder adds one, nothing else.

* engine: `engines/NAME.py` with ENGINE, an `engines.Engine`
* benchmark: `benchmarks/NAME.py` with BENCHMARK, a `benchmarks.Benchmark`
* gates: `gates/NAME.py` with GATES, a tuple of `gates.Gate`
* wall meters: `meters/NAME.py` with METERS, of `meters.MeterKind`
* power switches: `switches/NAME.py` with SWITCHES, of `switches.SwitchKind`

tests/unit/plugins/test_in_one_file.py has one of each, complete. What they are written against (a
case, its run, clients, MPI) is in `runtime/`.
"""
