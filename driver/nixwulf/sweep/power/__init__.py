"""Power and thermals: what nodes and wall meters tell of them while a benchmark runs.

sampler.sh prints samples on a node and samples.py reads them; meters.py reads wall meters;
energy.py makes averages of samples over windows, efficiency.py divides speeds by them and
throttling.py finds what slowed a node down; document.py puts a record's `power` together and
watch.py runs all this beside a run.
"""
