# What lies in a folder is found, not listed: adding a module, package, platform or test is adding a file.
{ lib }:
rec {
  # name -> path, of the *.nix files and of the folders with a default.nix.
  nixFiles =
    folder:
    lib.mapAttrs' (name: _: lib.nameValuePair (lib.removeSuffix ".nix" name) (folder + "/${name}")) (
      lib.filterAttrs (
        name: type:
        (type == "regular" && lib.hasSuffix ".nix" name)
        || (type == "directory" && builtins.pathExists (folder + "/${name}/default.nix"))
      ) (builtins.readDir folder)
    );

  # name -> path, of the files with an ending.
  withSuffix =
    suffix: folder:
    lib.mapAttrs' (name: _: lib.nameValuePair (lib.removeSuffix suffix name) (folder + "/${name}")) (
      lib.filterAttrs (name: type: type == "regular" && lib.hasSuffix suffix name) (
        builtins.readDir folder
      )
    );
}
