# AMD's fork of BLIS: its kernels for all generations of Zen, with AVX-512 from Zen 4 on.
{ hpl-openblas, amd-blis }: hpl-openblas.override { provider = amd-blis; }
