#!/bin/sh
# Runs in a clean Debian root: installs the package $1, uses what is in it, upgrades to $2, removes it, and looks for
# what is left. No systemd runs here; the virtual machine starts the units.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
before=$(find / -xdev -path /proc -prune -o -path /tmp -prune -o -name '*zcached*' -print)
[ -z "$before" ]
apt-get -q install -y --no-install-recommends "$1"
for program in zcached zcctl zcsim; do
    "$program" --version
    test -s "/usr/share/man/man1/$program.1.gz"
    test -s "/usr/share/bash-completion/completions/$program"
    test -s "/usr/share/zsh/vendor-completions/_$program"
    test -s "/usr/share/fish/vendor_completions.d/$program.fish"
done
test -s /usr/share/man/man5/zcached.toml.5.gz
for unit in zcached.service zcached-nbd.service zcached-events.service zcached.socket; do test -s "/lib/systemd/system/$unit"; done
test -s /lib/udev/rules.d/60-zcached.rules
for part in /usr/share/initramfs-tools/hooks/zcached /usr/share/initramfs-tools/scripts/local-top/zcached \
    /usr/lib/zcached/initramfs/daemon /usr/lib/zcached/initramfs/shutdown; do sh -n "$part"; test -x "$part"; done
# The units name programs, pages and targets that are there.
systemd-analyze verify zcached.service zcached-nbd.service zcached-events.service zcached.socket
getent passwd zcached
[ "$(stat -c %a /var/lib/zcached)" = 700 ]
zcached check-config /usr/share/doc/zcached/examples/zcached.toml
test -s /usr/share/doc/zcached/copyright

# The daemon serves a volume from files, as the user of the package.
place=$(mktemp -d)
chown zcached "$place"
cat > "$place/zcached.toml" << END
[cache]
path = "$place/cache.img"
size = "16 MiB"
state_dir = "$place/state"
direct = false
[[volume]]
name = "vm"
origin = "$place/vm.img"
create_size = "16 MiB"
[nbd]
listen = []
[control]
socket = "$place/control.sock"
[sandbox]
user = "zcached"
END
chmod 644 "$place/zcached.toml"
zcached --config "$place/zcached.toml" &
daemon=$!
for _ in $(seq 1 300); do
    if zcctl --socket "$place/control.sock" status; then break; fi
    kill -0 "$daemon"
    sleep 0.1
done
zcctl --socket "$place/control.sock" stop
wait "$daemon"
rm -rf "$place"

# An upgrade and a removal leave what the administrator made. A purge leaves nothing.
version() { dpkg-query -W -f '${Version}' zcached; }
old=$(version)
install -m 600 /usr/share/doc/zcached/examples/zcached.toml /etc/zcached.toml
apt-get -q install -y --no-install-recommends "$2"
dpkg --compare-versions "$(version)" gt "$old"
zcached check-config --syntax /etc/zcached.toml
apt-get -q remove -y zcached
test -s /etc/zcached.toml
[ -d /var/lib/zcached ]
apt-get -q install -y --no-install-recommends "$1"
rm /etc/zcached.toml
apt-get -q purge -y zcached
left=$(find / -xdev -path /proc -prune -o -path /tmp -prune -o -path /var/log -prune -o -name '*zcached*' -print)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo "the package is whole"
