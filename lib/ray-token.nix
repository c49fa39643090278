# Runs a command with the token of a cluster's Ray, which runs the code of whoever reaches it. The token is a variable and
# no file, for a container does not see systemd's credentials.
{ pkgs }:
pkgs.writeShellApplication {
  name = "with-ray-token";
  text = ''
    RAY_AUTH_TOKEN=$(<"$CREDENTIALS_DIRECTORY/ray-token")
    if [[ -z $RAY_AUTH_TOKEN ]]; then
      echo "with-ray-token: the file of nixwulf.vllm.rayTokenFile is empty; put the cluster's token in it." >&2
      exit 1
    fi
    export RAY_AUTH_TOKEN
    exec "$@"
  '';
}
