"""The settings of a fleet: `sections` declares them, `load` reads and checks them."""
