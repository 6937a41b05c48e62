from kctl.errors import BrokerUnreachable
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.cluster_reading import ClusterReading


class NoBrokers(ClusterReader):
    def __init__(self) -> None:
        pass

    def read(self) -> ClusterReading:
        raise BrokerUnreachable("no broker is there")

    def close(self) -> None:
        pass
