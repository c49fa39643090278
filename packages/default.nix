# The overlay: each folder of packages/ is one package, called with what nixpkgs has.
final: prev:
let
  folders = import ../lib/folders.nix { inherit (prev) lib; };
in
prev.lib.mapAttrs (_: path: final.callPackage path { }) (
  removeAttrs (folders.nixFiles ./.) [ "default" ]
)
