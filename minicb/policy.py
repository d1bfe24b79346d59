"""Who is next among the waiting: the one question that the scheduler asks, and six answers. (Chapters 7 and 9)

An order moves waiting from one request to another; it makes no token cheaper. A policy holds the waiting requests
and says who is next; limits, chunks and pages are not its business.

    fcfs                    in order of arrival: nobody starves, and a short one waits behind a long one
    priority                lower numbers first: whoever has a high one may wait for ever
    shortest_prefill_first  the fewest tokens to read first: a long one may wait for ever
    sjf_aging               the same, and each second of waiting makes a request smaller by some tokens
    hrrn                    the highest response ratio first: waiting in proportion to size
    vtc                     the client who was served least first (virtual token counter, Sheng et al. 2024)

Ties go to whoever came first. Size: the tokens that a request has to compute before it can write one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Protocol

from minicb.request import Request
from minicb.seams import seam

READ_PRICE, WRITE_PRICE = 1, 2  # of a token in the counters of vtc


@seam("7.5")
def response_ratio(waited_tokens: int, size: int) -> float:
    """How badly a waiting request is treated: waiting and reading, as a multiple of reading alone.

    waited_tokens: tokens that the engine computed, for whomever, since the request arrived
    size: tokens that the request itself has to compute before its first token, at least 1
    """
    return (waited_tokens + size) / size


@seam("9.1")
def aged_size(size: int, arrival_s: float, aging_tokens_per_s: float) -> float:
    """Sort key of shortest-first with aging; the lowest is next.

    After t seconds the size has shrunk to size - aging * (t - arrival_s). The part -aging * t is the same for
    everybody, so it is left out: then the key of a request never changes, and neither does the order of two.
    """
    return size + aging_tokens_per_s * arrival_s


@seam("9.2")
def latest_overtaker(size: int, arrival_s: float, other_size: int, aging_tokens_per_s: float) -> float:
    """Until when a request of `other_size` may arrive and still go before this one, in seconds of arrival.

    size, arrival_s: of the request that is overtaken   aging_tokens_per_s: above 0
    """
    return arrival_s + (size - other_size) / aging_tokens_per_s


@seam("9.3")
def charge(counter: float, tokens: int, price: float, weight: float) -> float:
    """A client's counter after the engine has worked for it.

    price: of one token; a written one costs more than a read one   weight: with 2 it gets twice as much as with 1
    """
    return counter + price * tokens / weight


@seam("9.4")
def lift(counter: float, others: Sequence[float]) -> float:
    """A client's counter when it comes back: silence earns no credit.

    others: counters of the clients who wait; if nobody does, that of the one who waited last, if any did
    """
    return max(counter, min(others, default=counter))


class Policy(Protocol):
    """The waiting requests in some order. Iteration shows them in any order; `len` counts them."""

    def add(self, request: Request) -> None: ...  # it waits from now on
    def pop(self) -> Request: ...  # the next one; asked only while somebody waits
    def put_back(self, request: Request) -> None: ...  # it found no room; the last one popped comes back first
    def remove(self, request: Request) -> None: ...  # it was aborted while it waited
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Request]: ...

    def started(self, request: Request) -> None:  # noqa: ARG002
        """It was popped, and runs from here on. Most policies do not mind."""
        return

    def computed(self, num_tokens: int, wrote: Sequence[Request]) -> None:  # noqa: ARG002
        """A step is over: so many tokens were computed, and these requests got one each. Nor this."""
        return


class Fcfs(deque[Request], Policy):
    """First come, first served."""

    add = deque.append  # type: ignore[assignment]
    put_back = deque.appendleft  # type: ignore[assignment]
    pop = deque.popleft  # type: ignore[assignment]


class Ranked(Policy):
    """The lowest key first. A key is computed once, so it must not change while its request waits."""

    def __init__(self, key: Callable[[Request], float]) -> None:
        self.key = key
        self.heap: list[tuple[float, int]] = []  # key and number; those of removed requests stay until popped
        self.waiting: dict[int, Request] = {}

    def add(self, request: Request) -> None:
        heappush(self.heap, (self.key(request), request.number))
        self.waiting[request.number] = request

    put_back = add

    def pop(self) -> Request:
        while (number := heappop(self.heap)[1]) not in self.waiting:
            pass
        return self.waiting.pop(number)

    def remove(self, request: Request) -> None:
        del self.waiting[request.number]

    def clear(self) -> None:
        self.heap, self.waiting = [], {}

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.waiting.values())


class Rows(Policy):
    """Several rows, each in order of arrival; the head of the row with the lowest rank is next."""

    def __init__(self) -> None:
        self.rows: dict[Any, deque[Request]] = {}

    def row_of(self, request: Request) -> Any:
        raise NotImplementedError

    def rank(self, row: Any) -> float:
        raise NotImplementedError

    def add(self, request: Request) -> None:
        self.rows.setdefault(self.row_of(request), deque()).append(request)

    def put_back(self, request: Request) -> None:
        self.rows.setdefault(self.row_of(request), deque()).appendleft(request)

    def pop(self) -> Request:
        request = self.rows[min(self.rows, key=lambda row: (self.rank(row), self.rows[row][0].number))][0]
        Rows.remove(self, request)
        return request

    def remove(self, request: Request) -> None:
        row = self.row_of(request)
        self.rows[row].remove(request)
        if not self.rows[row]:
            del self.rows[row]

    def clear(self) -> None:
        self.rows.clear()

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self.rows.values())


class Hrrn(Rows):
    """Highest response ratio next. Of equal sizes the oldest has it, so only the heads of the rows are compared.

    Sizes that agree in their first four bits share a row: the head's ratio is then within an eighth of the best, and
    ten thousand waiting ones are a hundred comparisons."""

    total = 0  # tokens computed so far

    def row_of(self, request: Request) -> int:
        size = request.num_uncomputed_tokens
        rest = max(0, size.bit_length() - 4)
        return size >> rest << rest

    def rank(self, row: int) -> float:
        head = self.rows[row][0]
        return -response_ratio(self.total - head.came_at, head.num_uncomputed_tokens)

    def add(self, request: Request) -> None:
        request.came_at = self.total
        super().add(request)

    def computed(self, num_tokens: int, wrote: Sequence[Request]) -> None:  # noqa: ARG002
        self.total += num_tokens


class Vtc(Rows):
    """Virtual token counter: a counter a client, and the lowest is next. Equal service for whoever always waits."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__()
        self.weights = weights
        self.counters: dict[str, float] = {}
        self.latest: str | None = None  # whose request started last

    def row_of(self, request: Request) -> str:
        return request.params.client

    def rank(self, row: str) -> float:
        return self.counters[row]

    def add(self, request: Request) -> None:
        client = self.row_of(request)
        if client not in self.rows:
            waiting = self.rows or ([] if self.latest is None else [self.latest])
            self.counters[client] = lift(self.counters.get(client, 0.0), [self.counters[c] for c in waiting])
        super().add(request)

    def started(self, request: Request) -> None:
        self.latest = self.row_of(request)
        self.bill(request, request.num_uncomputed_tokens, READ_PRICE)

    def computed(self, num_tokens: int, wrote: Sequence[Request]) -> None:  # noqa: ARG002
        for request in wrote:
            self.bill(request, 1, WRITE_PRICE)

    def bill(self, request: Request, tokens: int, price: float) -> None:
        client = self.row_of(request)
        self.counters[client] = charge(self.counters[client], tokens, price, self.weights.get(client, 1.0))


POLICIES: dict[str, Callable[[float, Mapping[str, float]], Policy]] = {
    "fcfs": lambda _aging, _weights: Fcfs(),
    "priority": lambda _aging, _weights: Ranked(lambda r: r.params.priority),
    "shortest_prefill_first": lambda _aging, _weights: Ranked(lambda r: r.num_uncomputed_tokens),
    "sjf_aging": lambda aging, _: Ranked(lambda r: aged_size(r.num_uncomputed_tokens, r.arrival_s, aging)),
    "hrrn": lambda _aging, _weights: Hrrn(),
    "vtc": lambda _, weights: Vtc(weights),
}


def make_policy(name: str, aging_tokens_per_s: float, client_weights: Mapping[str, float]) -> Policy:
    """An empty queue under this policy."""
    if name not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {name!r}")
    return POLICIES[name](aging_tokens_per_s, client_weights)
