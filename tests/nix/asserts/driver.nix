# The driver's package: nixpkgs' Python packages are new enough for it, and what it starts comes with it.
{ lib, nixwulf, ... }:
let
  pkgs = nixwulf.pkgs.x86_64-linux;
  inherit (pkgs.nixwulf) requires;

  tooOld =
    lib.optional (
      !lib.versionAtLeast pkgs.python3.version requires.python
    ) "python ${pkgs.python3.version} < ${requires.python}"
    ++ lib.mapAttrsToList (name: need: "${name} ${pkgs.python3Packages.${name}.version} < ${need}") (
      lib.filterAttrs (
        name: need: !lib.versionAtLeast pkgs.python3Packages.${name}.version need
      ) requires.packages
    );

  # Which of some packages the wrapper puts on PATH.
  onPath =
    packages:
    let
      path = lib.splitString ":" (
        builtins.unsafeDiscardStringContext (lib.last pkgs.nixwulf.makeWrapperArgs)
      );
      isThere = package: lib.elem (builtins.unsafeDiscardStringContext "${lib.getBin package}/bin") path;
    in
    map lib.getName (lib.filter isThere packages);
in
{
  "nixpkgs' Python and its packages are as new as pyproject.toml asks" = {
    expected = [ ];
    actual = tooOld;
  };
  "every dependency of pyproject.toml was read" = {
    expected = lib.length (
      (fromTOML (builtins.readFile ../../../driver/pyproject.toml)).project.dependencies
    );
    actual = lib.length pkgs.nixwulf.dependencies;
  };
  "bench, the lab and deploy find their programs" =
    let
      packages = with pkgs; [
        hpl-openblas
        iperf3
        iproute2
        iputils
        mpi
        nixos-anywhere
        nixwulf-llama-cpp-cpu
        openssh
        sockperf
        util-linux
      ];
    in
    {
      expected = map lib.getName packages;
      actual = onPath packages;
    };
  "the user's own programs come first" = {
    expected = [
      "--suffix"
      "PATH"
    ];
    actual = lib.take 2 pkgs.nixwulf.makeWrapperArgs;
  };
  "a Mac deploys and benchmarks over ssh, without the lab's programs" = {
    expected = [
      "coreutils"
      "git-minimal"
      "gnugrep"
      "iperf"
      "nix"
      "nixos-anywhere"
      "openssh"
    ];
    actual = map lib.getName nixwulf.pkgs.aarch64-darwin.nixwulf.programs;
  };
}
