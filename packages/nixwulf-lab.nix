# The driver with the programs of the lab, which take minutes to build.
{ nixwulf }: nixwulf.override { withLab = true; }
