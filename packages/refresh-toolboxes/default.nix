# Pins the images of modules/toolboxes.nix to what their tags are today.
{
  writeShellApplication,
  jq,
  skopeo,
}:
writeShellApplication {
  name = "refresh-toolboxes";
  runtimeInputs = [
    jq
    skopeo
  ];
  text = builtins.readFile ./refresh-toolboxes.sh;
  meta.description = "Pins container images of a lock file to what their tags are today";
}
