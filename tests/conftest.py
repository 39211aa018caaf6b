from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from millpond.query.evaluate import Evaluator
from tests.contract.places import Places
from tests.processes import make_them_quick
from tests.servers import Servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure() -> None:
    make_them_quick()
    # How long an example takes depends on what else the machine does.
    settings.register_profile("millpond", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("millpond")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests come first: processes share a run, and one that has no tests left takes some of those that
    the other has still to run."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if "servers" in fixtures:
            item.add_marker(pytest.mark.slow)
    long = ("spark", "slow")
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in long))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test run."""
    from millpond.engine.session import get_session

    session = get_session(master="local[2]", log_dir=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Real servers, each started when it is first asked for."""
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Places:
    """Where tables of every backend can live."""
    return Places(tmp_path_factory.mktemp("places"), servers)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    """Answers queries without an app; a test that uses it asks nothing of Spark."""
    made = Evaluator(_no_spark)
    yield made
    made.close()


def _no_spark(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    raise AssertionError(f"Spark was asked: {sql}")


@pytest.fixture
def tmp_state(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ssl.SSLContext]:
    """A certificate of 127.0.0.1 that nobody else trusts, and a server's context with it."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import IPv4Address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    made = built.add_extension(address, critical=False).sign(key, hashes.SHA256())
    folder = tmp_path_factory.mktemp("certificate")
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(secret)
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return str(folder / "ca.pem"), context
