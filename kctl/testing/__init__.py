"""Brokers and servers for tests, users' tests too, and for the demo.

Real ones as processes: `KafkaBroker`, `KafkaCluster`, `SecuredBroker`, `RedisServer`; and one that is scripted,
`ScriptedBroker`, which does what no real one can be asked for. `kctl_agent.rpc.scripted` is the same for agents.
"""
