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

  # Which of some packages a driver's wrapper puts on PATH.
  onPath =
    driver: packages:
    let
      path = lib.splitString ":" (builtins.unsafeDiscardStringContext (lib.last driver.makeWrapperArgs));
      isThere = package: lib.elem (builtins.unsafeDiscardStringContext "${lib.getBin package}/bin") path;
    in
    map lib.getName (lib.filter isThere packages);
  forNodes = with pkgs; [
    iperf3
    nixos-anywhere
    openssh
  ];
  forLab = with pkgs; [
    hpl-openblas
    iproute2
    iputils
    mpi
    nixwulf-llama-cpp-cpu
    sockperf
    util-linux
  ];
  # What an app's script finds on PATH first.
  driverOf =
    name:
    lib.findFirst
      (
        driver:
        lib.hasInfix (builtins.unsafeDiscardStringContext "${driver}/bin") (
          builtins.unsafeDiscardStringContext (nixwulf.commands.programs pkgs).${name}.text
        )
      )
      null
      [
        pkgs.nixwulf
        pkgs.nixwulf-lab
      ];
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
  "deploy, update and preflight find their programs, and build none of the lab's" = {
    expected = map lib.getName forNodes;
    actual = onPath pkgs.nixwulf (forNodes ++ forLab);
  };
  "the lab's are beside them where it runs" = {
    expected = map lib.getName (forNodes ++ forLab);
    actual = onPath pkgs.nixwulf-lab (forNodes ++ forLab);
  };
  "only bench, which runs the lab where no cluster is given, has the lab's" = {
    expected = {
      bench = true;
      default = false;
      deploy = false;
      update = false;
    };
    actual = lib.mapAttrs (name: _: driverOf name == pkgs.nixwulf-lab) (nixwulf.commands.programs pkgs);
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
