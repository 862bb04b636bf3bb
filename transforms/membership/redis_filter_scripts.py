"""What is done to a shared filter in one step: scripts, so that no switch comes between a look and what follows.

A block is 64 bytes, and all bits of a key lie in one.

Each is given the pointer as its caller knows it. Where another one is there, that is returned, and nothing was done;
where none is there, or bits are missing, nil: the filter was lost.
"""

from __future__ import annotations

from typing import Final

from ...connectors.redis_client import Script

KEYS_A_CALL: Final = 1000
"""Nobody else is served while a script runs: some milliseconds for so many new keys."""

_PRELUDE = """
local call, keys, argv, unpack = redis.call, KEYS, ARGV, struct.unpack
local pointer = call('GET', keys[1])
if not pointer then return false end
if pointer ~= argv[1] then return pointer end
"""

ASK = Script(
    _PRELUDE
    + """
local found = {}
for g = 2, #keys do
    local key, blocks, parts, count = keys[g], argv[2 * g - 1], {}, 0
    if call('STRLEN', key) ~= tonumber(argv[2 * g - 2]) then return false end
    for i = 1, #blocks, 4 do
        local at = unpack('<I4', blocks, i) * 64
        count = count + 1
        parts[count] = call('GETRANGE', key, at, at + 63)
    end
    found[g - 1] = table.concat(parts)
end
return found
"""
)
"""Keys: the pointer, then bits. Arguments: the pointer, then for each generation its length and block numbers.

Returns the blocks of each generation, joined.
"""

PUT = Script(
    _PRELUDE
    + """
local sub, key, blocks, old, new = string.sub, keys[2], argv[3], argv[4], argv[5]
if call('STRLEN', key) ~= tonumber(argv[2]) then return false end
local changed = 0
for i = 0, #blocks / 4 - 1 do
    local at, from, to = unpack('<I4', blocks, i * 4 + 1) * 64, i * 64 + 1, i * 64 + 64
    if call('GETRANGE', key, at, at + 63) == sub(old, from, to) then
        call('SETRANGE', key, at, sub(new, from, to))
    else
        changed = changed + 1
    end
end
return changed
"""
)
"""Keys: the pointer, the newest's bits. Arguments: the pointer, their length, block numbers, the blocks as they were,
and as they are to be. A block that somebody changed meanwhile is left as it is; returns how many.

Bit by bit it would take four times as long.
"""

SWITCH = Script(
    """
local call, keys = redis.call, KEYS
local pointer = call('GET', keys[1]) or ''
if pointer ~= ARGV[1] then
    call('UNLINK', keys[2])
    return pointer
end
call('SET', keys[1], ARGV[2])
call('PERSIST', keys[2])
for i = 3, #keys do call('UNLINK', keys[i]) end
return 1
"""
)
"""Keys: the pointer, the new generation's bits, those that go. Arguments: the pointer as it was ('' for none), and as
it is to be. Where another one is there the new bits go again, and it is returned."""
