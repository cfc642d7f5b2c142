# Block status at places that are no sectors' borders, through libnbd. Arguments: the URI of a write-back export whose
# second MiB is zeros that are allocated, and which keeps what is dirty.
import sys

import nbd

MIB = 1 << 20
h = nbd.NBD()
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(sys.argv[1])


def status(offset, length):
    found = []

    def note(name, at, entries, error):
        found.extend((entries[i], entries[i + 1]) for i in range(0, len(entries), 2))

    h.block_status(length, offset, note)
    return found


# What is read enters the cache behind the answer; what is zero is known to be zero then.
h.pread(MIB, MIB)
for _ in range(100000):
    if status(MIB, MIB) == [(MIB, 2)]:
        break
h.pwrite(b"x" * 512, MIB)
h.pwrite(b"y" * 1024, MIB + 32768 - 512)
assert status(MIB, 100) == [(100, 0)], "a part of a dirty sector"
assert status(MIB + 100, 16384) == [(412, 0), (15972, 2)], status(MIB + 100, 16384)
assert status(MIB + 32768 - 612, 200) == [(100, 2), (100, 0)]
assert status(MIB + 32768 + 412, 4096) == [(100, 0), (3996, 2)]
h.shutdown()
print("all of it")
