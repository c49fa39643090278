# Where programs listen for other nodes of a fabric: the same file that the driver reads.
{ lib }:
let
  table = fromTOML (builtins.readFile ../driver/nixwulf/data/ports.toml);
in
table
// {
  ranges = lib.mapAttrs (_: range: {
    from = lib.head range;
    to = lib.last range;
  }) table.ranges;
}
