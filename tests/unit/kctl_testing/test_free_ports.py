from kctl.testing.kafka_broker import free_ports


def test_ports_that_are_taken_at_once_are_all_different() -> None:
    ports = free_ports(500)

    assert len(set(ports)) == 500
    assert all(20000 <= port < 32000 for port in ports)
