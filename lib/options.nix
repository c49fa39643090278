# The options of all modules, from which their reference is rendered.
{ lib, nixwulf }:
let
  root = toString ../.;
  inherit
    (lib.nixosSystem {
      modules = lib.attrValues nixwulf.nixosModules ++ [ { nixpkgs.pkgs = nixwulf.pkgs.x86_64-linux; } ];
    })
    options
    ;
in
{
  # Each as a set with name, description, default, type and declarations.
  list = lib.filter (option: option.visible && !option.internal) (
    lib.optionAttrSetToDocList options.nixwulf
  );

  # An option without a description ends the build.
  reference =
    pkgs:
    (pkgs.nixosOptionsDoc {
      options = { inherit (options) nixwulf; };
      warningsAreErrors = true;
      # A file of the repository and not a path in the store, which would change with every commit.
      transformOptions =
        option:
        option
        // {
          declarations = map (file: lib.removePrefix "${root}/" (toString file)) option.declarations;
        };
    }).optionsCommonMark;
}
