"""Every command and every error of the NBD front end, through libnbd.

Arguments: the URIs of a writable, a read-only and an unknown export, and the origin of the first.
"""
import errno
import random
import sys

import nbd

disk, frozen, nothing, origin = sys.argv[1:5]


def connect(uri, structured=True, strict=True):
    handle = nbd.NBD()
    handle.set_request_structured_replies(structured)
    if not strict:
        # Let the server judge, not the library.
        handle.set_strict_mode(0)
    handle.connect_uri(uri)
    return handle


def fails(code, call, *args, **options):
    try:
        call(*args, **options)
    except nbd.Error as error:
        assert error.errnum == code, f"{call.__name__}{args}: {error.errno}, not {errno.errorcode[code]}"
    else:
        raise AssertionError(f"{call.__name__}{args} succeeds")


def twin_test(handle, twin, rounds, rng):
    """Reads and writes of any length at any offset."""
    for _ in range(rounds):
        length = rng.randint(1, 5000)
        at = rng.choice([rng.randrange(200_000), rng.randrange(len(twin) - length), len(twin) - length])
        kind = rng.randrange(6)
        if kind < 3:
            assert bytes(handle.pread(length, at)) == twin[at : at + length], (at, length)
        elif kind < 5:
            data = rng.randbytes(length)
            handle.pwrite(data, at, nbd.CMD_FLAG_FUA if rng.randrange(20) == 0 else 0)
            twin[at : at + length] = data
        else:
            handle.zero(length, at, nbd.CMD_FLAG_NO_HOLE if rng.randrange(2) else 0)
            twin[at : at + length] = bytes(length)


rng = random.Random(11)
h = connect(disk)
size = h.get_size()
twin = bytearray(size)
twin_test(h, twin, 1500, rng)
plain = connect(disk, structured=False)
assert not plain.get_structured_replies_negotiated()
twin_test(plain, twin, 500, rng)

# Two connections are one disk: what one was told is written, the other reads, and its flush covers it.
assert h.can_multi_conn()
for index in range(50):
    data = rng.randbytes(3000)
    h.pwrite(data, index * 7001)
    twin[index * 7001 : index * 7001 + 3000] = data
    assert bytes(plain.pread(3000, index * 7001)) == data
plain.flush()
with open(origin, "rb") as file:
    assert file.read() == twin, "the origin is not raw"

# Trim: old or zero, and stable. Zero: zero.
h.trim(65536, 1 << 20)
first = h.pread(65536, 1 << 20)
assert bytes(plain.pread(65536, 1 << 20)) == bytes(first)
h.zero(100_000, 2_000_001)
assert bytes(plain.pread(100_000, 2_000_001)) == bytes(100_000)
h.cache(1 << 20, 4 << 20)

# Errors that leave the connection usable.
loose = connect(disk, strict=False)
fails(errno.EINVAL, loose.pread, 512, size)
fails(errno.EINVAL, loose.pread, 1024, size - 512)
fails(errno.EINVAL, loose.pread, 512, (1 << 63) - 1024)
fails(errno.ENOSPC, loose.pwrite, bytes(512), size)
fails(errno.ENOSPC, loose.pwrite, bytes(1024), size - 512)
fails(errno.ENOSPC, loose.zero, 1024, size - 512)
ro = connect(frozen, strict=False)
assert ro.is_read_only()
fails(errno.EPERM, ro.pwrite, bytes(512), 0)
fails(errno.EPERM, ro.zero, 512, 0)
fails(errno.EPERM, ro.trim, 512, 0)
assert bytes(ro.pread(4096, 0)) == bytes(4096)
fails(errno.EPERM, ro.pwrite, bytes(512), 0)

# Commands of length zero are undefined by the protocol; they must not end the connection or hang.
for call, args in ((loose.pread, (0, 0)), (loose.pwrite, (b"", 0)), (loose.trim, (0, 0)), (loose.zero, (0, 0))):
    try:
        call(*args)
    except nbd.Error as error:
        assert error.errnum == errno.EINVAL, error
assert bytes(loose.pread(4096, 0)) == twin[:4096]

try:
    connect(nothing)
except nbd.Error as error:
    assert error.errnum == errno.ENOENT, error
else:
    raise AssertionError("an export that does not exist can be opened")

for handle in (h, plain, loose, ro):
    handle.shutdown()
print("all of it")
