# Minisforum MS-S1 Max: for NixOS what FEVM's machine is, with facts of its own.
import ../fevm-fa-ex9
