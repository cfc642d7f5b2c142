#!/bin/bash
# First process on the root disk: prepares the machine, runs the scenario that the kernel's command line names, and
# switches off. Results go to the second serial port, one JSON object per line; the last is {"end":true}.
export PATH=/payload:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /dev/pts /mnt/a /etc/udev/rules.d
mount -t devpts pts /dev/pts
ln -s /proc/self/fd /dev/fd
cp /payload/60-zcached.rules /etc/udev/rules.d/
/lib/systemd/systemd-udevd --daemon
modprobe ublk_drv
modprobe nbd max_part=8
word() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
scenario=$(word scenario)
# shellcheck disable=SC2034
rounds=$(word rounds) mode=$(word mode) only=$(word only)
. /payload/lib.sh
if [ "$scenario" = shell ]; then
    setsid bash -i <> /dev/console >&0 2>&1
else
    # shellcheck source=/dev/null
    . "/payload/$scenario.sh"
    result '{"end":true}'
fi
echo o > /proc/sysrq-trigger
sleep 60
