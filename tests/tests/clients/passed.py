# Sockets that are there already: standard input, and LISTEN_FDS. Arguments: the daemon and its arguments.
import sys

import nbd

command = sys.argv[1:]

h = nbd.NBD()
h.connect_command(command + ["--stdio"])
assert h.get_size() == 4 << 20
h.pwrite(b"by standard input", 5)
h.shutdown()
del h

h = nbd.NBD()
h.connect_systemd_socket_activation(command)
assert h.pread(17, 5) == b"by standard input"
h.shutdown()
print("all of it")
