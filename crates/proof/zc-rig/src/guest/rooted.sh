#!/bin/bash
# Runs in a machine whose root file system is on a volume, or was: looks at what came of the boot. `stage` says which
# boot it is.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C
word() { sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline; }
stage=$(word stage)
mode=$(word mode)
# shellcheck disable=SC2034
only=
# shellcheck source=/dev/null
. /payload/lib.sh

root_device() { stat -c %d /; }
device() { echo $((16#$(stat -L -c %t "$1") * 256 + 16#$(stat -L -c %T "$1"))); }
daemon_pid() { daemon_status --json | jq .pid; }
volume() { daemon_status --json | jq -r ".volumes[0].$1"; }

on_volume() {
    same "$(root_device)" "$(device /dev/disk/by-id/zcached-root)" "the device of /"
    same "$(volume info.device)" /dev/ublkb0 "the device of the volume"
    # The daemon has the origin, which has the same UUID.
    fails mount /dev/vda /mnt/a
    touch /written && sync /written
    same "$(systemctl list-units --failed --no-legend --plain)" "" "failed units"
}

# The unit neither starts a daemon beside this one nor ends this one.
one_daemon() {
    local before
    before=$(daemon_pid)
    same "$(tr '\0' '\n' < "/proc/$before/cmdline" | head -n 1)" @zcached "the name of the daemon"
    same "$(systemctl is-active zcached)" inactive "the unit"
    systemctl start zcached
    same "$(systemctl is-active zcached)" inactive "the unit, started"
    systemctl stop zcached
    same "$(daemon_pid)" "$before" "the daemon"
    # It does not keep the root file system mounted.
    fails grep ublkb0 "/proc/$before/mountinfo"
    journalctl -b -k --no-pager | grep "zcached: ready"
}

hits() {
    find /usr/bin -type f > /tmp/files
    for _ in 1 2; do
        sync
        echo 3 > /proc/sys/vm/drop_caches
        xargs cat < /tmp/files > /dev/null
    done
    figure hits "$(volume traffic.hits)"
    [ "$(volume traffic.hits)" -gt 0 ]
}

# came_back PID: waits until another daemon answers.
came_back() {
    for _ in $(seq 1 300); do
        if daemon_status > /dev/null 2>&1 && [ "$(daemon_pid)" != "$1" ]; then return 0; fi
        sleep 0.1
    done
    return 1
}

# Requests wait meanwhile: these programs are on the root file system.
killed() {
    local before
    before=$(daemon_pid)
    kill -KILL "$before"
    came_back "$before"
    echo 3 > /proc/sys/vm/drop_caches
    md5sum /usr/bin/b* > /tmp/sums
    same "$(root_device)" "$(device /dev/ublkb0)" "the device of /"
}

stopped() {
    local before
    before=$(daemon_pid)
    zcctl stop --keep-dirty
    came_back "$before"
}

# The package is not removed, and its upgrade leaves the daemon alone and has the initramfs made anew. To make it takes
# minutes here, and the installation did.
upgraded() {
    local before
    before=$(daemon_pid)
    fails dpkg --purge zcached
    printf '#!/bin/sh\necho "$@" > /tmp/initramfs\n' > /tmp/update-initramfs
    chmod 755 /tmp/update-initramfs
    mount --bind /tmp/update-initramfs /usr/sbin/update-initramfs
    dpkg -i /payload/zcached-newer.deb
    umount /usr/sbin/update-initramfs
    same "$(cat /tmp/initramfs)" -u "what update-initramfs was told"
    same "$(daemon_pid)" "$before" "the daemon"
}

keep() {
    dd if=/dev/urandom of=/kept bs=64k count=64 conv=fsync status=none
    cp /kept /kept.copy
}

ended_in_order() {
    cmp /kept /kept.copy
    same "$(volume info.cold_reason)" null "why the volume is cold"
    # The root file system was unmounted: its journal had nothing to recover.
    dmesg > /tmp/kernel
    fails grep -iE "recover(y|ing)|orphan" /tmp/kernel
}

# What the boot before had read is there.
warm() {
    figure hits-at-boot "$(volume traffic.hits)"
    [ "$(volume traffic.hits)" -gt 100 ]
}

# What only the cache has would keep the next boot from doing without it.
settled() { zcctl flush root; }

on_origin() {
    same "$(root_device)" "$(device /dev/vda)" "the device of /"
    fails pgrep zcached
    echo "written without the cache" > /kept
    echo "written without the cache" > /kept.copy
}

out_of_date() {
    cmp /kept /kept.copy
    same "$(cat /kept)" "written without the cache" "a file"
    [ "$(volume info.cold_reason)" != null ]
}

# The SSD is missing.
without_ssd() {
    daemon_status --json | jq -e '.cache.healthy | not'
    same "$(daemon_status --json | jq -r .verdict.state)" DEGRADED "the verdict"
    echo "written without the SSD" > /kept
    sync /kept
    echo 3 > /proc/sys/vm/drop_caches
    same "$(cat /kept)" "written without the SSD" "a file"
}

back() {
    daemon_status --json | jq -e .cache.healthy
    same "$(cat /kept)" "written without the SSD" "a file"
    [ "$(volume info.cold_reason)" != null ]
}

# Not by a pipe: `yes` fails when nothing reads on.
only_the_cache_has_this() { head -c 4M < <(yes "only the cache has this"); }

leave_dirty() {
    only_the_cache_has_this > /kept
    sync /kept
    [ "$(daemon_status --json | jq '.volumes[0].dirty.bytes')" -gt 0 ]
}

found() { only_the_cache_has_this | cmp - /kept; }

systemctl is-system-running --wait
mkdir -p /mnt/a
case $stage in
without) check on-origin on_origin ;;
*) check on-volume on_volume ;;
esac
case $stage in
cold)
    check one-daemon one_daemon
    check hits hits
    check kill killed
    check stop stopped
    check package upgraded
    check keep keep
    ;;
warm)
    check one-daemon one_daemon
    check ended-in-order ended_in_order
    check warm warm
    check settle settled
    ;;
after) check out-of-date out_of_date ;;
missing) check without-ssd without_ssd ;;
back)
    check back back
    if [ "$mode" = write-back ]; then
        check dirty leave_dirty
        result '{"end":true}'
        # As if the power went.
        echo b > /proc/sysrq-trigger
    fi
    ;;
found) check found found ;;
esac
result '{"end":true}'
systemctl reboot
