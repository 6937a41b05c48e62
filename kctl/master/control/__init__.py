"""Serves `master.sock`: `server` reads frames and writes replies, `router` passes requests on, `service` answers
questions."""
