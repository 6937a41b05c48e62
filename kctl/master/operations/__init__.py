"""How operations are carried out: one at a time where they would contradict, each with an outcome. What there is to
carry out is in `kctl.operations`."""
