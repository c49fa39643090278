"""Power and thermals: samples of nodes and wall meters while a benchmark runs.

watch.py runs samplers and meters beside a run; document.py puts a record's `power` together: watts,
speeds over them, and what held clocks down.
"""
