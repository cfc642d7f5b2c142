# A connection that stays open. Argument: the URI. Each line on standard input asks for a read, and the answer says
# whether the connection serves it.
import sys

import nbd

h = nbd.NBD()
h.set_uri_allow_local_file(True)
h.connect_uri(sys.argv[1])
print("connected", flush=True)
for _ in sys.stdin:
    try:
        h.pread(512, 0)
        print("served", flush=True)
    except nbd.Error:
        print("ended", flush=True)
