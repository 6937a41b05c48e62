"""A real broker with TLS, SASL and authorisation besides its plain listener, and contexts for it."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kctl.demo.kafka_broker import free_ports
from tests.certificates import make_certificate
from tests.servers.kafka_broker import KafkaBroker

PASSWORD = "correct horse"


class SecuredBroker:
    """Listeners as HOST:PORT: `plain` (everybody may do everything), `tls`, `sasl` and `sasl_tls`. Users are `alice`,
    without rights, and `boss`, with all. Each has PLAIN, SCRAM and (unsigned) OAUTHBEARER tokens."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ca_file = make_certificate(directory)
        ports = free_ports(5)
        broker, controller, tls, sasl, sasl_tls = ports
        self.tls, self.sasl, self.sasl_tls = (f"127.0.0.1:{port}" for port in (tls, sasl, sasl_tls))
        self.controller = f"127.0.0.1:{controller}"
        self.broker = KafkaBroker(
            directory / "broker", self._properties(*ports), choose_ports=lambda: (broker, controller)
        )

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        with tempfile.TemporaryDirectory(prefix="b", dir="/tmp", ignore_cleanup_errors=True) as folder:
            made = cls(Path(folder))
            made.start()
            try:
                yield made
            finally:
                made.broker.stop()

    @property
    def plain(self) -> str:
        return self.broker.bootstrap_servers

    def start(self) -> None:
        self.broker.start()
        with KafkaAdminClient(bootstrap_servers=self.plain) as admin:
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                users = [UserScramCredentialUpsertion(user, mechanism, PASSWORD) for user in ("alice", "boss")]
                assert set(admin.alter_user_scram_credentials(users).values()) == {None}

    def add_user(self, name: str) -> None:
        with KafkaAdminClient(bootstrap_servers=self.plain) as admin:
            user = UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_512, PASSWORD)
            assert set(admin.alter_user_scram_credentials([user]).values()) == {None}

    def grant(self, user: str, right: Right) -> None:
        with KafkaAdminClient(bootstrap_servers=self.plain) as admin:
            assert not admin.create_acls([_acl(user, right)])["failed"]

    def revoke(self, user: str, right: Right) -> None:
        acl = _acl(user, right)
        with KafkaAdminClient(bootstrap_servers=self.plain) as admin:
            [done] = admin.delete_acls(
                [ACLFilter(acl.principal, acl.host, acl.operation, acl.permission_type, acl.resource_pattern)]
            )
            assert len(done[1]) == 1, done

    def settings(self, user: str) -> dict[str, str]:
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text(f"{PASSWORD}\n")
        return {
            "security_protocol": "SASL_SSL",
            "tls_ca_file": str(self.ca_file),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": user,
            "sasl_password_file": str(password),
        }

    def token(self, user: str) -> str:
        """An unsecured JSON web token, which a broker accepts unless another kind is configured."""
        now = int(time.time())
        parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 600})
        return (
            ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."
        )

    def write_contexts(self) -> Path:
        secrets = {"password": PASSWORD, "wrong": "not " + PASSWORD, "boss-token": self.token("boss")}
        for name, text in secrets.items():
            (self.directory / name).touch(0o600)
            (self.directory / name).write_text(f"{text}\n")
        lines = [
            *_context("tls", self.tls, "SSL", tls_ca_file="cert.pem"),
            *_context("tls-unknown-ca", self.tls, "SSL"),
            *_context("tls-to-plain", self.plain, "SSL", tls_ca_file="cert.pem"),
            *_context("plain-to-tls", self.tls, "PLAINTEXT"),
            *_context("plain-to-sasl", self.sasl, "PLAINTEXT"),
            *_context("sasl-to-plain", self.plain, "SASL_PLAINTEXT", **_user("PLAIN", "boss")),
            *_context("wrong-password", self.sasl, "SASL_PLAINTEXT", **_user("SCRAM-SHA-512", "boss", "wrong")),
            *_context("wrong-password-plain", self.sasl_tls, "SASL_SSL", **_user("PLAIN", "boss", "wrong"), **_CA),
            *_context("nobody", self.sasl, "SASL_PLAINTEXT", **_user("SCRAM-SHA-256", "nobody")),
            *_context("alice", self.sasl, "SASL_PLAINTEXT", **_user("SCRAM-SHA-256", "alice")),
            *_context("boss-PLAIN", self.sasl, "SASL_PLAINTEXT", **_user("PLAIN", "boss")),
            *_context("boss-SCRAM-SHA-256", self.sasl, "SASL_PLAINTEXT", **_user("SCRAM-SHA-256", "boss")),
            *_context("boss-SCRAM-SHA-512", self.sasl_tls, "SASL_SSL", **_user("SCRAM-SHA-512", "boss"), **_CA),
            *_context(
                *("boss-OAUTHBEARER", self.sasl_tls, "SASL_SSL"),
                **{"sasl_mechanism": "OAUTHBEARER", "oauth_token_file": "boss-token"} | _CA,
            ),
        ]
        file = self.directory / "clusters.toml"
        file.write_text("\n".join(lines))
        return file

    def _properties(self, broker: int, controller: int, tls: int, sasl: int, sasl_tls: int) -> dict[str, str]:
        named = {"BROKER": broker, "TLS": tls, "SASL": sasl, "SASL_TLS": sasl_tls}
        advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in named.items())
        users = "".join(f' user_{user}="{PASSWORD}"' for user in ("alice", "boss"))
        modules = {
            "plain": f"org.apache.kafka.common.security.plain.PlainLoginModule required{users};",
            "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
        }
        return {
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,"
            "SASL_TLS:SASL_SSL",
            "ssl.keystore.location": str(self.directory / "server.pem"),
            "ssl.keystore.type": "PEM",
            "sasl.enabled.mechanisms": ",".join(name.upper() for name in modules),
            **{
                f"listener.name.{listener}.{name}.sasl.jaas.config": module
                for listener in ("sasl", "sasl_tls")
                for name, module in modules.items()
            },
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:boss",
        }


class Right(NamedTuple):
    resource: str
    name: str
    operation: str


def _acl(user: str, right: Right) -> ACL:
    pattern = ResourcePattern(ResourceType[right.resource], right.name)
    return ACL(f"User:{user}", "*", ACLOperation[right.operation], ACLPermissionType.ALLOW, pattern)


_CA = {"tls_ca_file": "cert.pem"}


def _user(mechanism: str, name: str, password: str = "password") -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": name, "sasl_password_file": password}


def _context(name: str, servers: str, protocol: str, **settings: str) -> list[str]:
    reported = {"bootstrap_servers": servers, "security_protocol": protocol, **settings}
    return [f"[contexts.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in reported.items())]
