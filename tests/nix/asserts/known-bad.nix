{
  evaluate,
  failures,
  lib,
  ...
}:
let
  table = fromTOML (builtins.readFile ../../../driver/nixwulf/data/known_bad.toml);

  refused =
    settings:
    lib.filter (lib.hasInfix "is known to be bad") (
      failures (evaluate [ { nixwulf.known-bad = settings; } ])
    );
  pair = {
    kernelVersion = "7.2.2";
    firmwareVersion = "20260810";
  };
  halves =
    entry: prefix: ends:
    map (end: entry ? "${prefix}_${end}") ends;
in
{
  "a bad pair is refused on the GPU that it was seen on" = {
    expected = 1;
    actual = lib.length (refused (pair // { gpu = "gfx1151"; }));
  };
  "it is nobody else's business" = {
    expected = [ ];
    actual = refused pair;
  };
  "half of a pair is not the pair" = {
    expected = [ ];
    actual = refused (
      pair
      // {
        gpu = "gfx1151";
        kernelVersion = "7.1.2";
      }
    );
  };
  "who allows it by name may have it" = {
    expected = [ ];
    actual = refused (
      pair
      // {
        gpu = "gfx1151";
        allow = [ "kernel-7_2-firmware-20260810" ];
      }
    );
  };
  "a node tells the driver the release of its firmware" = {
    expected = "20260810";
    actual =
      (evaluate [ { nixwulf.known-bad = pair; } ]).environment.etc."nixwulf/linux-firmware".text;
  };
  "every entry says what was seen, what helps, and where that is from" = {
    expected = [ ];
    actual = lib.attrNames (
      lib.filterAttrs (
        _: entry: !(entry ? gpu && entry ? reason && entry ? fix && lib.hasPrefix "https://" entry.source)
      ) table
    );
  };
  "every entry has a condition, and every range two ends" = {
    expected = [ ];
    actual = lib.attrNames (
      lib.filterAttrs (
        _: entry:
        let
          kernel = halves entry "kernel" [
            "from"
            "before"
          ];
          firmware = halves entry "firmware" [
            "from"
            "to"
          ];
          whole = range: lib.head range == lib.last range;
        in
        !(whole kernel && whole firmware && (lib.head kernel || lib.head firmware || entry ? mes))
      ) table
    );
  };
}
