"""A sweep of one case: a model of random weights split over two nodes, a few seconds long."""

SWEEP = """
name: own
models: {tiny: {random: {layers: 2}}}
matrix:
  model: [tiny]
  nodes: [2]
  parallelism: [pipeline]
  parameters: {n_prompt: [16], n_gen: [8], threads: [1]}
samples: 2
"""
