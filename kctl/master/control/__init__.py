"""`master.sock`: `server` reads frames and writes replies, `router` finds who answers, `service` answers questions."""
