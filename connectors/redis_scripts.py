"""The verbs of the Redis ledger, one Lua script each: nothing comes between its reads and its writes.

A row's value; whole numbers are big-endian, times are microseconds since 1970 by the server's clock:

| bytes | at | what |
|---|---|---|
| 1 | 0 | version, 1 |
| 1 | 1 | state: `o` open, `f` finished |
| 16 | 2 | owner |
| 8 | 18 | end of the lease; 0 once finished |
| 8 | 26 | when it was inserted; once finished, when it was finished |
| | 34 | claim and tail, see `redis_format` |

In each script `keys` are the rows, `px` is the retention in milliseconds, and each row has its own arguments after the
common ones.
"""

from __future__ import annotations

from typing import NamedTuple

from .redis_client import Script

_PRELUDE = """
local call, keys, argv, sub = redis.call, KEYS, ARGV, string.sub
local function micros(number) return struct.pack('>I8', number) end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local count = #keys
"""

_INDEXED = """
count = #keys - 1
local index, head_bytes = keys[#keys], #keys[1] - 16
local function listed(i, lease_until)
    call('ZADD', index, string.format('%.0f', lease_until), sub(keys[i], head_bytes + 1))
end
local function unlisted(i) call('ZREM', index, sub(keys[i], head_bytes + 1)) end
"""
"""For ledgers that list their open rows: the last key is a sorted set of digests by the end of their lease, which lives
as long as the row that changed last. It may hold rows that are done: whoever lists looks at the row itself.
"""


class Pair(NamedTuple):
    """A script, and the same for a ledger that lists its open rows."""

    plain: Script
    listing: Script


def _pair(source: str) -> Pair:
    """Make both of a source whose calls of `listed` and `unlisted` stand on lines of their own, marked `--index`."""
    plain = "".join(line for line in source.splitlines(keepends=True) if not line.endswith("--index\n"))
    return Pair(Script(_PRELUDE + plain), Script(_PRELUDE + _INDEXED + source))


CLAIM = _pair("""
local px, state, owner, lease = argv[1], argv[2], argv[3], tonumber(argv[4])
local lease_until = 0
if state == 'o' then lease_until = now + lease end
local head = '\\1' .. state .. owner .. micros(lease_until) .. micros(now)
local mine, others = {}, false
for i = 1, count do
    if call('SET', keys[i], head .. argv[i + 4], 'PX', px, 'NX') then mine[#mine + 1] = i else others = true end
end
if state == 'o' then for j = 1, #mine do listed(mine[j], lease_until) end end --index
call('PEXPIRE', index, px) --index
if not others then return false end
local rows = {micros(now)}
for i = 1, count do
    local row = redis.pcall('GET', keys[i])
    if type(row) == 'table' then
        for j = 1, #mine do call('DEL', keys[mine[j]]) end
        return row
    end
    rows[i + 1] = row
end
return rows
""")
"""px, state, owner, lease in microseconds, then for each row its claim.

Returns nothing if all were inserted, else the time and all rows. A key that holds no string undoes the call.
"""

READ = Script(
    _PRELUDE
    + """
local rows = {micros(now)}
for i = 1, #keys do rows[i + 1] = call('GET', keys[i]) end
return rows
"""
)
"""Returns the time, then each row or false."""

TAKE = _pair("""
local px, owner, lease = argv[1], argv[2], tonumber(argv[3])
local head = '\\1o' .. owner .. micros(now + lease)
local taken = {}
for i = 1, count do
    local row, seen, claim = call('GET', keys[i]), argv[2 * i + 2], argv[2 * i + 3]
    if row and sub(row, 1, 2) == '\\1o' then
        local own = sub(row, 3, 18) == owner
        if own or (seen ~= '' and sub(row, 3, 26) == seen) then
            local start = sub(row, 1, 34)
            if seen ~= '' then start = head .. sub(row, 27, 34) end
            if claim == '' then claim = sub(row, 35) end
            call('SET', keys[i], start .. claim, 'PX', px)
            taken[#taken + 1] = i
            if seen ~= '' then listed(i, now + lease) end --index
        end
    end
end
call('PEXPIRE', index, px) --index
return taken
""")
"""px, owner, lease in microseconds, then for each row: owner and lease as seen, or '' for a row of this owner that
keeps its lease; claim, or '' to keep it. Returns the numbers, from 1, of the rows that now are this owner's. A row that
an earlier attempt took is.
"""

FINISH = _pair("""
local px, owner = argv[1], argv[2]
local head = '\\1f' .. owner .. micros(0) .. micros(now)
local others = {}
for i = 1, count do
    local row, claim, tail = call('GET', keys[i]), argv[2 * i + 1], argv[2 * i + 2]
    if not row then
        call('SET', keys[i], head .. claim .. tail, 'PX', px)
    elseif sub(row, 1, 1) ~= '\\1' or sub(row, 3, 18) ~= owner then
        others[#others + 1] = i
    elseif sub(row, 2, 2) == 'o' then
        call('SET', keys[i], head .. sub(row, 35) .. tail, 'PX', px)
        unlisted(i) --index
    end
end
return others
""")
"""px, owner, then for each row: claim, tail. Returns the numbers, from 1, of the rows that are not this owner's."""

RELEASE = _pair("""
local mine = '\\1o' .. argv[1]
for i = 1, count do
    local row = call('GET', keys[i])
    if row and sub(row, 1, 18) == mine then
        call('DEL', keys[i])
        unlisted(i) --index
    end
end
return count
""")
"""owner. Deletes the rows that are open and this owner's."""

OPEN_ROWS = Script(
    _PRELUDE
    + """
local index, head, limit = keys[1], argv[1], tonumber(argv[2])
local before, after, after_score, skip = now - tonumber(argv[3]), argv[4], argv[5], tonumber(argv[6])
local rank = 0
if after ~= '' then
    -- A member that sorts right behind the last one shows where that would stand, whatever became of it.
    local marker = after .. '\\0'
    call('ZADD', index, after_score, marker)
    rank = call('ZRANK', index, marker)
    call('ZREM', index, marker)
end
local reply, looked = {micros(now), '', '0'}, 0
for _, digest in ipairs(call('ZRANGE', index, rank + skip, rank + skip + limit - 1)) do
    local score = tonumber(call('ZSCORE', index, digest))
    if score >= before then break end
    looked = looked + 1
    reply[2], reply[3] = digest, string.format('%.0f', score)
    local row = call('GET', head .. digest)
    local lease_until = row and sub(row, 1, 2) == '\\1o' and struct.unpack('>I8', sub(row, 19, 26))
    if not lease_until then
        call('ZREM', index, digest)
    elseif lease_until ~= score then
        call('ZADD', index, string.format('%.0f', lease_until), digest)
    else
        reply[#reply + 1] = digest
        reply[#reply + 1] = row
    end
end
if looked < limit then reply[2] = '' end
return reply
"""
)
"""Index; head of the rows' keys, how many, microseconds, digest and score of the last one looked at, how many to skip.

Returns the time, digest and score of the last one looked at ('' where it was the last), then digest and row of each.
What is listed and no longer open is taken off the list.
"""

COUNT_OPEN = Script(
    _PRELUDE
    + """
local before, counts = string.format('(%.0f', now - tonumber(argv[1])), {}
for i = 1, count do counts[i] = call('ZCOUNT', keys[i], '-inf', before) end
return counts
"""
)
"""Indexes; microseconds. Returns how many rows each lists whose lease ended longer ago."""
