#!/bin/sh
# Runs in a clean Debian root with rpm: installs the package $1, upgrades to $2, removes it, and looks for what is left.
# Debian's packages are not in the database of rpm, hence --nodeps.
set -eu
export LC_ALL=C
rpm --install --nodeps "$1"
for program in zcached zcctl zcsim; do "$program" --version; done
systemd-analyze verify zcached.service zcached-nbd.service zcached-events.service zcached.socket
getent passwd zcached
[ "$(stat -c %a /var/lib/zcached)" = 700 ]
install -m 600 /usr/share/doc/zcached/examples/zcached.toml /etc/zcached.toml
touch /var/lib/zcached/known
rpm --upgrade --nodeps "$2"
[ "$(rpm --query --queryformat '%{RELEASE}' zcached)" = 2 ]
rpm --verify --nodeps zcached
zcached check-config --syntax /etc/zcached.toml
rpm --erase zcached
# What the administrator and the daemon made stays.
rm /etc/zcached.toml /var/lib/zcached/known
rmdir /var/lib/zcached
left=$(find / -xdev -path /proc -prune -o -path /tmp -prune -o -path /var/log -prune -o -name '*zcached*' -print)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo "the package is whole"
