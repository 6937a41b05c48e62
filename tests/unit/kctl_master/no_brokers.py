from kctl.errors import BrokerUnreachable
from kctl.kafka.polls.cluster_reading import ClusterReading


class NoBrokers:
    def read(self) -> ClusterReading:
        raise BrokerUnreachable("no broker is there")

    def close(self) -> None:
        pass
