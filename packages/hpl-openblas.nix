# HPL by BLAS, because that choice is most of the result: 308 or 1915 Gflops on one Framework Desktop
# (https://github.com/geerlingguy/top500-benchmark/issues/66 and 93). Its configure takes the only BLAS that it finds;
# on macOS that would be Apple's before any of these.
{
  lib,
  hpl,
  blas,
  openblas,
  provider ? openblas,
}:
(hpl.override { blas = blas.override { blasProvider = provider; }; }).overrideAttrs (old: {
  name = "hpl-${lib.getName provider}-${old.version}";
  meta = old.meta // {
    description = "${old.meta.description}, with ${lib.getName provider}";
    platforms = lib.intersectLists lib.platforms.linux provider.meta.platforms;
  };
})
