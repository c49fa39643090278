# The driver, with every program that it starts for nodes. nixwulf-lab has those of the lab too: HPL and this flake's
# llama.cpp are in no public cache, and who deploys waits for neither.
{
  lib,
  stdenv,
  python3Packages,
  coreutils,
  gitMinimal,
  gnugrep,
  hpl-openblas,
  iperf3,
  iproute2,
  iputils,
  mpi,
  nix,
  nixos-anywhere,
  nixwulf-llama-cpp-cpu,
  openssh,
  sockperf,
  util-linux,
  withLab ? false,
}:
let
  pyproject = fromTOML (builtins.readFile ../../driver/pyproject.toml);
  inherit (pyproject) project;
  source = fromTOML (builtins.readFile ./source.toml);

  # name -> lowest version, of lines such as "numpy>=1.26". tests/nix/asserts/driver.nix compares it with nixpkgs.
  lowestVersions =
    lines:
    lib.listToAttrs (
      map (
        line:
        let
          parts = builtins.match "([A-Za-z0-9_-]+)>=([0-9.]+)" line;
        in
        if parts == null then
          throw "driver/pyproject.toml: '${line}' is not NAME>=VERSION; write it so."
        else
          lib.nameValuePair (lib.head parts) (lib.last parts)
      ) lines
    );
  dependencies = lowestVersions project.dependencies;

  programs = [
    coreutils
    gitMinimal
    gnugrep
    iperf3
    nix
    nixos-anywhere
    openssh
  ]
  # A cluster of network namespaces on this machine.
  ++ lib.optionals (withLab && stdenv.hostPlatform.isLinux) [
    hpl-openblas
    iproute2
    iputils
    mpi
    nixwulf-llama-cpp-cpu
    sockperf
    util-linux
  ];
in
python3Packages.buildPythonApplication {
  pname = project.name;
  version = lib.head (
    builtins.match ".*__version__ = \"([^\"]+)\".*" (builtins.readFile ../../driver/nixwulf/__init__.py)
  );
  pyproject = true;

  src = lib.fileset.toSource {
    root = ../..;
    fileset = lib.fileset.unions (map (path: ../.. + "/${path}") source.files);
  };
  sourceRoot = "source/driver";

  build-system = [ python3Packages.setuptools ];
  dependencies = lib.attrVals (lib.attrNames dependencies) python3Packages;

  # After PATH, not before: the user's ssh is the one that understands the user's ~/.ssh (macOS's knows more words), and
  # who has a llama.cpp of their own wants to see that one measured.
  makeWrapperArgs = [
    "--suffix"
    "PATH"
    ":"
    (lib.makeBinPath programs)
  ];

  nativeCheckInputs = [
    python3Packages.hypothesis
    python3Packages.pytest-timeout
    python3Packages.pytestCheckHook
  ];
  # The tests name files of the repository from its root; there, it is the installed package that is imported.
  preCheck = "cd ..";
  enabledTestPaths = [ source.tests ];
  pytestFlags = source.flags;
  disabledTestPaths = source.without;
  disabledTestMarks = source.without_marks;
  # From a folder without clusters/: it has to be the installed one.
  postCheck = ''
    (cd "$(mktemp -d)" && $out/bin/nixwulf predict --cluster framework-2 --model gpt-oss-120b)
  '';
  # Who runs the driver does not wait for its tests: the flake's check 'driver-tests' runs them.
  doCheck = false;
  pythonImportsCheck = [ "nixwulf.cli.main" ];

  passthru = {
    inherit programs;
    requires = {
      packages = dependencies // lowestVersions pyproject.build-system.requires;
      python = lib.removePrefix ">=" project.requires-python;
    };
  };

  meta = {
    inherit (project) description;
    license = lib.licenses.asl20;
    platforms = lib.platforms.linux ++ lib.platforms.darwin;
    mainProgram = "nixwulf";
  };
}
