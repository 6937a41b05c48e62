class PlayedStats:
    def __init__(self) -> None:
        self.troubles: dict[str, tuple[str, str | None]] = {}  # why each part cannot work, and what is unavailable
        self.events: list[tuple[str, str]] = []

    def failing(self, part: str, why: str, outside: str | None = None) -> None:
        self.troubles[part] = why, outside

    def works(self, part: str) -> None:
        self.troubles.pop(part, None)

    def happened(self, kind: str, text: str) -> None:
        self.events.append((kind, text))
