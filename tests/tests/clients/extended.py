# Extended headers through libnbd: lengths of 64 bits, block status by payload, and each older style beside them.
# Argument: the URI of an empty export of 6 GiB.
import errno
import sys

import nbd

uri = sys.argv[1]
MIB = 1 << 20
GIB = 1 << 30
BASE = nbd.CONTEXT_BASE_ALLOCATION
RESIDENCY = "x-zcached:residency"


def connect(extended=True):
    h = nbd.NBD()
    h.set_request_extended_headers(extended)
    h.add_meta_context(BASE)
    h.add_meta_context(RESIDENCY)
    h.connect_uri(uri)
    assert h.get_extended_headers_negotiated() == extended
    assert h.get_structured_replies_negotiated()
    return h


def status(h, length, offset, wanted=None, flags=0):
    found = {}

    def note(name, at, entries, error):
        assert at == offset and name not in found
        found[name] = entries

    if wanted is None:
        h.block_status_64(length, offset, note, flags)
        assert set(found) == {BASE, RESIDENCY}, found
    else:
        h.block_status_filter(length, offset, wanted, note, flags)
        assert set(found) == set(wanted), found
    return found


h, old = connect(), connect(extended=False)
assert h.get_size() == 6 * GIB
assert h.can_block_status_payload() and not old.can_block_status_payload()

# One extent that 32 bits cannot say. Residency is told as far as the server cares to look at once.
found = status(h, 6 * GIB, 0)
assert found[BASE] == [(6 * GIB, 3)] and [state for _, state in found[RESIDENCY]] == [0], found

# Contexts chosen request by request.
found = status(h, 6 * GIB, 0, [BASE])
assert found == {BASE: [(6 * GIB, 3)]}, found
found = status(h, 6 * GIB, 0, [RESIDENCY])
assert set(found) == {RESIDENCY} and found[RESIDENCY][0][1] == 0, found
assert set(status(h, MIB, 5 * GIB, [BASE, RESIDENCY])) == {BASE, RESIDENCY}
one = status(h, 6 * GIB, 0, [BASE], nbd.CMD_FLAG_REQ_ONE)
assert one == {BASE: [(6 * GIB, 3)]}, one

# Ordinary requests between, in both styles on one disk.
for index, at in enumerate([0, 4 * GIB - 3, 6 * GIB - 70000]):
    data = bytes([index + 1]) * 70000
    (h if index % 2 else old).pwrite(data, at, nbd.CMD_FLAG_FUA)
    assert h.pread(70000, at) == data and old.pread(70000, at) == data
entries = status(h, 6 * GIB, 0, [BASE])[BASE]
assert sum(length for length, _ in entries) == 6 * GIB and entries[0][1] == 0, entries

# One request zeroes, another trims, more than 4 GiB.
h.zero(5 * GIB, 0)
assert old.pread(70000, 0) == bytes(70000) and old.pread(70000, 4 * GIB - 3) == bytes(70000)
assert old.pread(70000, 6 * GIB - 70000) == bytes([3]) * 70000
h.trim(6 * GIB, 0)
h.zero(6 * GIB, 0, nbd.CMD_FLAG_FAST_ZERO)
assert status(old, 70000, 6 * GIB - 70000)[BASE] == [(70000, 3)]
assert old.pread(70000, 6 * GIB - 70000) == bytes(70000)

# Errors tell what they would with short lengths.
loose = nbd.NBD()
loose.set_strict_mode(0)
loose.connect_uri(uri)
for code, call, args in (
    (errno.EINVAL, loose.trim, (6 * GIB, 1)),
    (errno.ENOSPC, loose.zero, (6 * GIB, 1)),
    (errno.EINVAL, loose.pread, (512, 6 * GIB)),
    (errno.ENOSPC, loose.pwrite, (bytes(512), 6 * GIB)),
):
    try:
        call(*args)
        raise AssertionError(f"{call.__name__} past the end succeeds")
    except nbd.Error as error:
        assert error.errnum == code, error
assert loose.pread(512, 0) == bytes(512)
for handle in (h, old, loose):
    handle.flush()
    handle.shutdown()
print("all of it")
