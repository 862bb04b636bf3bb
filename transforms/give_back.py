"""Give back rows that were taken over and for which no call was made, so that others need not wait for a lease.

They go to an owner that nobody is, under a lease that has ended. That is as if whoever took them over had died before
a first call, and the lease had run out since:

- no call of this flush is on its way: none was made, or the sink answered that nothing was applied; none can follow,
  since the row is no longer its own;
- the calls of the owner before had their lease, and grace, before the row could be taken over at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from ..connectors.contract import LedgerSession, Take
from ..connectors.errors import OutcomeUnknown, Unavailable
from .flush import Kit
from .groups import Group

_MARGIN_SECONDS = 0.001


def give_back(groups: Sequence[Group], ledger: LedgerSession, kit: Kit, *, owner: bytes) -> list[Group]:
    """Return the groups whose rows may be taken over at once; the lease of the others has to run out.

    Rows that nobody brings again are not given back: the pass that has just met trouble with them would find them anew.
    """
    digests = [each.digest for each in groups if not each.left_over]
    if not digests:
        return []
    nobody, ended_seconds = secrets.token_bytes(16), -kit.rules.grace_seconds - _MARGIN_SECONDS
    try:
        rows = kit.repeat(lambda: ledger.read(digests))
        takes = [Take(digest, row) for digest, row in rows.items() if row.owner == owner and not row.finished]
        back = kit.repeat(lambda: ledger.take(takes, owner=nobody, lease_seconds=ended_seconds))
    except (Unavailable, OutcomeUnknown):
        return []
    kit.metrics.count("released", len(back))
    return [each for each in groups if each.digest in back]
