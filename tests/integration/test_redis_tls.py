"""Redis behind TLS, with a certificate made for the test."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from oncesink.connectors.contract import Claim, Scope, Use
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.redis_ledger import RedisLedger

from tests.servers import free_port, redis_server, self_signed

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")

SCOPE = Scope(name="orders", use=Use.WRITE)
CLAIM = Claim(b"a" * 16, None, None)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate that nobody signed but itself; its key stands in the same folder."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def url(certificate: Path) -> Iterator[str]:
    """Run a Redis that speaks TLS on a port of its own."""
    port = free_port()
    options = {"tls_cert_file": str(certificate), "tls_key_file": str(certificate.with_name("key.pem"))}
    with redis_server(tls_port=str(port), tls_auth_clients="no", tls_ca_cert_file=str(certificate), **options):
        yield f"rediss://127.0.0.1:{port}/0"


def test_options_of_the_url_reach_the_connection(url: str, certificate: Path) -> None:
    """A server whose certificate is trusted takes claims, the second call on the connection of the first."""
    ledger = RedisLedger(f"{url}?ssl_ca_certs={certificate}", retention=timedelta(hours=1))
    session = ledger.open(SCOPE)
    assert session.claim([CLAIM], owner=b"O" * 16, lease_seconds=30.0) == {}
    assert set(session.read([CLAIM.digest])) == {CLAIM.digest}


def test_a_certificate_that_is_not_trusted_stops_the_job(url: str) -> None:
    """It is a wrong setting, and no passing trouble."""
    with pytest.raises(Misconfigured, match="certificate is not trusted"):
        RedisLedger(url, retention=timedelta(hours=1)).open(SCOPE)
