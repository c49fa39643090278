"""The lab: a cluster of network namespaces on one Linux machine, with a real sshd in each node."""

from nixwulf.nodes.lab.handle import Lab, find, labs
from nixwulf.nodes.lab.links import Shaping
from nixwulf.nodes.lab.start import up

__all__ = ["Lab", "Shaping", "find", "labs", "up"]
