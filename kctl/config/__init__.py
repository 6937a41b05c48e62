"""The settings of a fleet. `sections` declares them, and `load` reads and checks them."""
