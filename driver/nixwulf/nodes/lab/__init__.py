"""The lab: a cluster of network namespaces on one Linux machine, with a real sshd in each node."""

from nixwulf.nodes.lab.handle import Lab, find, labs, up
from nixwulf.nodes.lab.links import Shaping

__all__ = ["Lab", "Shaping", "find", "labs", "up"]
