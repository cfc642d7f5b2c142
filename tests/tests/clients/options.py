"""Option negotiation through libnbd's opt mode: every order a client may choose, and back again.

Arguments: the URI of the server without an export name, the names of a writable and of a read-only export.
"""
import errno
import sys

import nbd

socket, disk, frozen = sys.argv[1:4]


def negotiate(structured=True, tls=nbd.TLS_DISABLE):
    """A connection that stays in negotiation."""
    handle = nbd.NBD()
    handle.set_opt_mode(True)
    handle.set_request_structured_replies(structured)
    handle.set_tls(tls)
    # Let the server judge, not the library.
    handle.set_strict_mode(0)
    handle.connect_unix(socket)
    assert handle.aio_is_negotiating()
    return handle


def fails(code, call, *args, **options):
    try:
        call(*args, **options)
    except nbd.Error as error:
        assert code is None or error.errnum == code, f"{call.__name__}{args}: {error}, not {errno.errorcode[code]}"
    else:
        raise AssertionError(f"{call.__name__}{args} succeeds")


def names(handle):
    found = []
    handle.opt_list(lambda name, description: found.append(name))
    return sorted(found)


def info(handle, name):
    handle.set_export_name(name)
    handle.opt_info()
    return handle.get_size(), bool(handle.is_read_only())


# List, ask, ask again, list again, then go: nothing of it commits to anything.
h = negotiate()
assert h.get_structured_replies_negotiated()
assert names(h) == sorted([disk, frozen])
sizes = {name: info(h, name) for name in (disk, frozen, disk)}
assert not sizes[disk][1] and sizes[frozen][1]
h.set_export_name("no such export")
fails(errno.ENOENT, h.opt_info)
fails(None, h.get_size)
fails(errno.ENOENT, h.opt_go)
assert h.aio_is_negotiating()
assert names(h) == sorted([disk, frozen])
# Asked about one, gone to the other.
assert info(h, frozen) == sizes[frozen]
h.set_export_name(disk)
h.opt_go()
assert h.aio_is_ready() and (h.get_size(), bool(h.is_read_only())) == sizes[disk]
h.pwrite(b"opted" * 100, 1234)
assert bytes(h.pread(500, 1234)) == b"opted" * 100
h.shutdown()

# Names that are too long, empty or strange are refused one by one, and the session lives.
h = negotiate()
for name in ("x" * 4000, "", "\u00e9" * 100, disk + "/", disk.upper()):
    h.set_export_name(name)
    try:
        h.opt_info()
        assert name == "", f"{name[:20]} is an export"
    except nbd.Error:
        pass
assert info(h, disk) == sizes[disk]
h.opt_abort()
assert h.aio_is_closed()

# Meta contexts: unknown ones are no error, queries of any kind leave the session usable.
h = negotiate()
h.set_export_name(disk)
for queries in (["no:such"], ["base:"], ["base:allocation", "no:such"], [":"], ["x" * 1000]):
    h.clear_meta_contexts()
    for query in queries:
        h.add_meta_context(query)
    try:
        h.opt_list_meta_context(lambda name: 0)
    except nbd.Error as error:
        assert error.errnum in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP), error
    assert info(h, disk) == sizes[disk]
h.opt_go()
assert bytes(h.pread(5, 1234)) == b"opted"
h.shutdown()

# Without structured replies everything works too.
h = negotiate(structured=False)
assert not h.get_structured_replies_negotiated()
assert names(h) == sorted([disk, frozen])
assert info(h, disk) == sizes[disk]
h.opt_go()
assert bytes(h.pread(5, 1234)) == b"opted"
fails(errno.EINVAL, h.pread, 512, sizes[disk][0])
h.shutdown()

# TLS is off here: who would like it goes on without, who needs it is told.
h = negotiate(tls=nbd.TLS_ALLOW)
assert not h.get_tls_negotiated()
assert info(h, frozen) == sizes[frozen]
h.opt_go()
assert h.is_read_only()
h.shutdown()
fails(None, negotiate, tls=nbd.TLS_REQUIRE)

# A client that goes away in the middle of the handshake harms no other client.
for _ in range(20):
    h = negotiate()
    h.set_export_name(frozen)
    h.opt_info()
    del h

# Not strict: flags, lengths and offsets that the library would not send.
h = negotiate()
h.set_export_name(disk)
h.opt_go()
size = h.get_size()
fails(errno.EINVAL, h.pread, 512, 0, flags=1 << 9)
fails(errno.EINVAL, h.pwrite, bytes(512), 0, flags=1 << 9)
fails(errno.EINVAL, h.trim, 512, 0, flags=1 << 9)
fails(errno.EINVAL, h.flush, flags=1 << 9)
fails(errno.EINVAL, h.pread, 512, (1 << 63) - 512)
fails(errno.ENOSPC, h.pwrite, bytes(1), size)
fails(None, h.trim, 1 << 20, size - 512)
fails(None, h.cache, 1 << 20, size - 512)
assert bytes(h.pread(5, 1234)) == b"opted"
h.pread(1 << 20, 0, nbd.CMD_FLAG_DF)
h.pwrite(b"fua", 0, nbd.CMD_FLAG_FUA)
h.trim(4096, 8192, nbd.CMD_FLAG_FUA)
h.zero(4096, 16384, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
assert bytes(h.pread(4096, 16384)) == bytes(4096)
h.shutdown()
print("all of it")
