"""An application that is attached to a fleet: what its queries report, the brokers' ends, a shadow group."""
