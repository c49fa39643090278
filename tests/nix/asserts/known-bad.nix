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
  bad = {
    gpu = "gfx1151";
    llamaCppRocm = "10566";
  };
  halves =
    entry: prefix: ends:
    map (end: entry ? "${prefix}_${end}") ends;
in
{
  "a bad build of llama.cpp with ROCm is refused on the GPU that it was seen on" = {
    expected = 1;
    actual = lib.length (refused bad);
  };
  "it is nobody else's business" = {
    expected = [ ];
    actual = refused (bad // { gpu = null; });
  };
  "builds before and after are not, nor one without ROCm, nor kernel 7.2 with firmware 20260810" = {
    expected = [ ];
    actual =
      lib.concatMap
        (
          llamaCppRocm:
          refused (
            bad
            // {
              inherit llamaCppRocm;
              kernelVersion = "7.2.2";
              firmwareVersion = "20260810";
            }
          )
        )
        [
          "9842"
          "10039"
          "10900"
          null
        ];
  };
  "firmware of the range is refused alone" = {
    expected = 1;
    actual = lib.length (refused {
      gpu = "gfx1151";
      firmwareVersion = "20251125";
    });
  };
  "who allows it by name may have it" = {
    expected = [ ];
    actual = refused (bad // { allow = [ "llama_cpp-b10040-rocm" ]; });
  };
  "a node tells the driver the release of its firmware" = {
    expected = "20260810";
    actual =
      (evaluate [ { nixwulf.known-bad.firmwareVersion = "20260810"; } ])
      .environment.etc."nixwulf/linux-firmware".text;
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
          llamaCpp = halves entry "llama_cpp" [
            "from"
            "before"
          ];
          whole = range: lib.head range == lib.last range;
        in
        !(
          lib.all whole [
            kernel
            firmware
            llamaCpp
          ]
          && (lib.head kernel || lib.head firmware || lib.head llamaCpp || entry ? mes)
        )
      ) table
    );
  };
}
