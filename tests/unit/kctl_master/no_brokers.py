from kctl.kafka.polls.cluster_reading import ClusterReading


class NoBrokers:
    def read(self) -> ClusterReading:
        raise ConnectionError

    def close(self) -> None:
        pass
