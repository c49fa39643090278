# What every installer image has: an ssh server that lets in the cluster's keys, and nothing to type.
{
  services.openssh = {
    enable = true;
    settings.PasswordAuthentication = false;
    settings.PermitRootLogin = "prohibit-password";
  };
  # nixos-anywhere knows an installer by this host name's image and skips kexec there.
  networking.hostName = "nixwulf-installer";
}
