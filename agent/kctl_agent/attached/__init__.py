"""An application that is attached to a fleet: what its queries tell, the brokers' ends, a shadow group."""
