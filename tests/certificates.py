"""Self-signed certificates of servers on this machine, which clients trust directly."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str = "localhost") -> Path:
    """Creates cert.pem, key.pem and server.pem (certificate and key) for localhost and 127.0.0.1. Returns the first."""
    certificate, key, both = (folder / f"{each}.pem" for each in ("cert", "key", "server"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    both.touch(0o600)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate


def expire(folder: Path) -> None:
    certificate, key, both = (folder / f"{each}.pem" for each in ("cert", "key", "server"))
    command = ["openssl", "x509", "-in", str(certificate), "-signkey", str(key), "-days", "-1"]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    certificate.write_text(made)
    both.write_text(key.read_text() + made)
