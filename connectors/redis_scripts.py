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

from .redis_client import Script

_PRELUDE = """
local call, keys, argv, sub = redis.call, KEYS, ARGV, string.sub
local function micros(number) return struct.pack('>I8', number) end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
"""

CLAIM = Script(
    _PRELUDE
    + """
local px, state, owner, lease = argv[1], argv[2], argv[3], tonumber(argv[4])
local lease_until = 0
if state == 'o' then lease_until = now + lease end
local head = '\\1' .. state .. owner .. micros(lease_until) .. micros(now)
local mine, others = {}, false
for i = 1, #keys do
    if call('SET', keys[i], head .. argv[i + 4], 'PX', px, 'NX') then mine[#mine + 1] = keys[i] else others = true end
end
if not others then return false end
local rows = {micros(now)}
for i = 1, #keys do
    local row = redis.pcall('GET', keys[i])
    if type(row) == 'table' then
        for j = 1, #mine do call('DEL', mine[j]) end
        return row
    end
    rows[i + 1] = row
end
return rows
"""
)
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

TAKE = Script(
    _PRELUDE
    + """
local px, owner, lease = argv[1], argv[2], tonumber(argv[3])
local head = '\\1o' .. owner .. micros(now + lease)
local taken = {}
for i = 1, #keys do
    local row, seen, claim = call('GET', keys[i]), argv[2 * i + 2], argv[2 * i + 3]
    if row and sub(row, 1, 2) == '\\1o' then
        local own = sub(row, 3, 18) == owner
        if own or (seen ~= '' and sub(row, 3, 26) == seen) then
            local start = sub(row, 1, 34)
            if seen ~= '' then start = head .. sub(row, 27, 34) end
            if claim == '' then claim = sub(row, 35) end
            call('SET', keys[i], start .. claim, 'PX', px)
            taken[#taken + 1] = i
        end
    end
end
return taken
"""
)
"""px, owner, lease in microseconds, then for each row: owner and lease as seen, or '' for a row of this owner that
keeps its lease; claim, or '' to keep it. Returns the numbers, from 1, of the rows that now are this owner's. A row that
an earlier attempt took is.
"""

FINISH = Script(
    _PRELUDE
    + """
local px, owner = argv[1], argv[2]
local head = '\\1f' .. owner .. micros(0) .. micros(now)
local others = {}
for i = 1, #keys do
    local row, claim, tail = call('GET', keys[i]), argv[2 * i + 1], argv[2 * i + 2]
    if not row then
        call('SET', keys[i], head .. claim .. tail, 'PX', px)
    elseif sub(row, 1, 1) ~= '\\1' or sub(row, 3, 18) ~= owner then
        others[#others + 1] = i
    elseif sub(row, 2, 2) == 'o' then
        call('SET', keys[i], head .. sub(row, 35) .. tail, 'PX', px)
    end
end
return others
"""
)
"""px, owner, then for each row: claim, tail. Returns the numbers, from 1, of the rows that are not this owner's."""

RELEASE = Script(
    """
local call, keys, mine = redis.call, KEYS, '\\1o' .. ARGV[1]
for i = 1, #keys do
    local row = call('GET', keys[i])
    if row and string.sub(row, 1, 18) == mine then call('DEL', keys[i]) end
end
return #keys
"""
)
"""owner. Deletes the rows that are open and this owner's."""
