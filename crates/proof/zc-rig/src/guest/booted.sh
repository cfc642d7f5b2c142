#!/bin/bash
# Runs in a machine that its own systemd booted, with a file system on a volume in fstab: looks at what came of it,
# restarts and upgrades under load, and removes the package in the second boot. `rounds` says which boot it is.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
word() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
boot=$(word rounds)
# shellcheck disable=SC2034
only=
# shellcheck source=/dev/null
. /payload/lib.sh

main_pid() { systemctl show --property MainPID --value zcached; }
at_us() { systemctl show --property "$2" --value "$1"; }

# What systemd made of fstab and units.
mounted() {
    for unit in zcached.service data.mount local-fs.target multi-user.target; do
        systemctl is-active "$unit" || { systemctl status --no-pager -l "$unit"; return 1; }
    done
    same "$(findmnt -n -o SOURCE /data)" /dev/ublkb0 "what is mounted"
    same "$(cat /data/before)" "written to the bare disk" "a file of the bare disk"
    [ "$boot" = 1 ] || cmp /data/kept /data/kept.copy
}

in_order() {
    journalctl -b --no-pager > /tmp/boot
    fails grep -i "ordering cycle" /tmp/boot
    same "$(systemctl list-units --failed --no-legend --plain | grep -E 'zcached|data|local-fs')" "" "failed units"
    # The daemon was started first, and waited.
    [ "$(at_us zcached ExecMainStartTimestampMonotonic)" -lt "$(at_us late-disks ActiveEnterTimestampMonotonic)" ]
    [ "$(at_us late-disks ExecMainExitTimestampMonotonic)" -lt "$(at_us zcached ActiveEnterTimestampMonotonic)" ]
    [ "$(at_us zcached ActiveEnterTimestampMonotonic)" -lt "$(at_us data.mount ActiveEnterTimestampMonotonic)" ]
}

# load: writes and verifies, again and again, until told; each pass leaves a byte.
load() {
    rm -f /tmp/enough /tmp/wrong /tmp/passes
    while [ ! -e /tmp/enough ]; do
        fio --name=load --filename=/data/load --rw=randwrite --bs=4k --size=2m --direct=1 --fsync=32 --verify=crc32c \
            --verify_fatal=1 --output=/tmp/fio || { cat /tmp/fio; touch /tmp/wrong; break; }
        printf . >> /tmp/passes
    done
}

# beside_load COMMAND...: runs it between two passes of the load, and wants all passes right.
beside_load() {
    load > /tmp/load 2>&1 &
    passed 1
    "$@"
    passed $(($(passes) + 2))
    touch /tmp/enough
    wait $!
    [ ! -e /tmp/wrong ] || { cat /tmp/load; return 1; }
    # The file system was there all the time.
    journalctl -b -u data.mount --no-pager > /tmp/mounts
    fails grep Unmount /tmp/mounts
    same "$(findmnt -n -o SOURCE /data)" /dev/ublkb0 "what is mounted"
}

passes() { stat -c %s /tmp/passes 2> /dev/null || echo 0; }

passed() {
    for _ in $(seq 1 900); do
        [ "$(passes)" -lt "$1" ] || return 0
        [ ! -e /tmp/wrong ] || break
        sleep 0.1
    done
    echo "the load does not come to $1 passes"
    cat /tmp/load
    return 1
}

restarted() {
    local before
    before=$(main_pid)
    systemctl restart zcached
    [ "$(main_pid)" != "$before" ]
}

killed() {
    local before
    before=$(main_pid)
    kill -KILL "$before"
    for _ in $(seq 1 300); do
        if [ "$(systemctl show --property NRestarts --value zcached)" -gt 0 ]; then
            systemctl is-active --quiet zcached && [ "$(main_pid)" != "$before" ] && return 0
        fi
        sleep 0.1
    done
    systemctl status --no-pager -l zcached
    return 1
}

upgraded() {
    local before
    before=$(main_pid)
    dpkg -i /payload/zcached-newer.deb
    [ "$(main_pid)" != "$before" ]
    case "$(dpkg-query -W -f '${Version}' zcached)" in *newer) ;; *) return 1 ;; esac
}

keep() {
    dd if=/dev/urandom of=/data/kept bs=64k count=32 conv=fsync status=none
    cp /data/kept /data/kept.copy
}

# How the boot before this one ended.
ended_in_order() {
    journalctl -b -1 --no-pager -o cat > /tmp/before
    local unmounted stopped
    unmounted=$(grep -n "Unmounted data.mount" /tmp/before | tail -n 1 | cut -d: -f1)
    stopped=$(grep -n "Stopped zcached.service" /tmp/before | tail -n 1 | cut -d: -f1)
    [ -n "$unmounted" ] && [ -n "$stopped" ] || { tail -n 40 /tmp/before; return 1; }
    [ "$unmounted" -lt "$stopped" ]
    zcctl status --json | jq -e '.volumes[0].info.cold_reason == null'
}

removed() {
    # A package whose device is mounted stays.
    fails dpkg --purge zcached
    systemctl is-active zcached
    umount /data
    sed -i /zcached/d /etc/fstab
    systemctl daemon-reload
    zcctl flush hdd
    dpkg --purge zcached
    fails systemctl is-active zcached
    same "$(ls /dev/ublkb* 2> /dev/null)" "" "devices that are left"
    # These two are the administrator's.
    rm /etc/zcached.toml
    rm -r /var/lib/zcached
    same "$(find / -xdev -name '*zcached*' -not -path '/tmp/*' -not -path '/var/log/*')" "" "what is left"
    same "$(find /run -name '*zcached*' -not -path '/run/systemd/*')" "" "what is left in /run"
    mount /dev/mapper/hdd /data
    cmp /data/kept /data/kept.copy
    umount /data
}

systemctl is-system-running --wait
check mounted mounted
check in-order in_order
if [ "$boot" = 1 ]; then
    check restart beside_load restarted
    check kill beside_load killed
    check upgrade beside_load upgraded
    check keep keep
else
    check ended-in-order ended_in_order
    check remove removed
fi
result '{"end":true}'
systemctl poweroff
