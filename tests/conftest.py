"""What several test files share."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import torch

# Without a GPU the Triton kernels run in Triton's interpreter. It looks at this once, when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Whoever runs the tests may have work of their own in the course: the tests must neither see nor touch it.
os.environ["MINICB_HOME"] = tempfile.mkdtemp(prefix="minicb-test-")


@pytest.fixture(scope="session")
def compiled() -> None:
    """For tests of the compiled extra: skipped where it cannot be built."""
    from minicb.kernels.compiler import library

    try:
        library()
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests of tiny models: on several threads torch takes longer to share the work than to do it."""
    from tests.harness.threads import one_thread as limit

    with limit():
        yield


LIMIT_S = 60.0  # for each such test: many times what the slowest takes, so that a hang is a failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if "one_thread" not in getattr(item, "fixturenames", ()) or not hasattr(signal, "setitimer"):
        return (yield)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"still running after {LIMIT_S:.0f} s"))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every attempt to leave this machine raises, and is noted in the list, even if somebody swallows the error."""
    attempts: list[str] = []
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def refuse(where: Any) -> None:
        attempts.append(str(where))
        raise OSError(f"the network is denied in this test: {where}")

    def check(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            refuse(address)

    def denied_connect(self: socket.socket, address: Any) -> None:
        check(self, address)
        connect(self, address)

    def denied_connect_ex(self: socket.socket, address: Any) -> int:
        check(self, address)
        return connect_ex(self, address)

    def denied_lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_local(host):
            refuse(host)
        return getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", denied_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", denied_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", denied_lookup)
    return attempts


def is_local(host: Any) -> bool:
    if host in (None, "", b"", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
