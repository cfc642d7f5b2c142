# Block status, sparse reads, prefetch and fast zeros through libnbd. Arguments: the URI of an export of 32 MiB whose
# first MiB is data and whose second is zeros that are allocated; the rest is a hole.
import errno
import sys

import nbd

uri = sys.argv[1]
MIB = 1 << 20
RESIDENCY = "x-zcached:residency"


def connect():
    h = nbd.NBD()
    h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    h.add_meta_context(RESIDENCY)
    h.connect_uri(uri)
    assert h.can_meta_context(RESIDENCY) and h.can_meta_context("base:allocation")
    return h


def status(h, offset, length, flags=0):
    found = {}

    def note(name, at, entries, error):
        assert at == offset and name not in found
        found[name] = [(entries[i], entries[i + 1]) for i in range(0, len(entries), 2)]

    h.block_status(length, offset, note, flags)
    assert set(found) == {"base:allocation", RESIDENCY}
    return found["base:allocation"], found[RESIDENCY]


one, two = connect(), connect()
assert one.can_multi_conn() and one.can_fast_zero() and one.can_cache() and one.can_df()

# Nothing was read yet: the origin alone knows.
base, residency = status(one, 0, 32 * MIB)
assert base == [(2 * MIB, 0), (30 * MIB, 3)], base
assert residency == [(32 * MIB, 0)], residency
assert status(one, MIB, 2 * MIB, nbd.CMD_FLAG_REQ_ONE)[0] == [(MIB, 0)]

# What is read enters the cache behind the answer; what is zero is known to be zero then.
one.pread(MIB, MIB)
for _ in range(100000):
    base, residency = status(two, MIB, MIB)
    if base == [(MIB, 2)]:
        break
assert base == [(MIB, 2)] and residency == [(MIB, 1)], (base, residency)

# A prefetch brings content into the cache.
assert status(two, 0, MIB)[1] == [(MIB, 0)]
one.cache(MIB, 0)
for _ in range(100000):
    base, residency = status(two, 0, MIB)
    if residency == [(MIB, 1)]:
        break
assert residency == [(MIB, 1)] and base == [(MIB, 0)], (base, residency)


def chunks(flags, offset, length):
    seen = []

    def note(part, at, kind, error):
        seen.append((at, len(part), kind))

    data = one.pread_structured(length, offset, note, flags)
    return data, seen


data, seen = chunks(0, MIB - 8192, 16384)
assert data[8192:] == bytes(8192) and any(data[:8192])
assert seen == [(MIB - 8192, 8192, nbd.READ_DATA), (MIB, 8192, nbd.READ_HOLE)], seen
same, seen = chunks(nbd.CMD_FLAG_DF, MIB - 8192, 16384)
assert same == data and seen == [(MIB - 8192, 16384, nbd.READ_DATA)], seen

# Fast zeros where the origin punches holes; never where the space must stay.
one.zero(65536, 0, nbd.CMD_FLAG_FAST_ZERO)
assert two.pread(65536, 0) == bytes(65536)
before = two.pread(65536, 131072)
try:
    one.zero(65536, 131072, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
    raise AssertionError("space that stays allocated is not promised to be fast")
except nbd.Error as error:
    assert error.errnum == errno.ENOTSUP, error
assert two.pread(65536, 131072) == before
assert status(one, 0, 65536)[0] == [(65536, 3)]

# A flush on one connection covers the writes of the other, and both see one disk.
one.pwrite(b"x" * 1000, 20 * MIB + 7)
two.flush()
assert two.pread(1000, 20 * MIB + 7) == b"x" * 1000
assert status(two, 20 * MIB, 4096)[0] == [(4096, 0)]
for h in (one, two):
    h.shutdown()
print("all of it")
