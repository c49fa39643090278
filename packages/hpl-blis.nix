{ hpl-openblas, blis }: hpl-openblas.override { provider = blis; }
