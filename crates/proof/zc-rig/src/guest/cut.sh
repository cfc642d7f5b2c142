# One life of a machine whose power is cut: what the last cuts left is judged, then files are made durable until the
# next one. `left` names the folders and what is known of them, `life` this life; without `life` the machine ends in order.
D=/dev/ublkb0
fs=$(word fs) left=$(word left) life=$(word life) age=$(word age) canary=$(word canary)

prepare() {
    # The first time, everything is made.
    if [ -z "$left" ]; then
        mkfs.ext4 -qF /dev/vdd
        zcctl format /dev/vdb
    fi
    mount /dev/vdd /tmp/state
    start_daemon
    await $D
    # The kernel then takes the disk for one that needs no flush.
    [ -z "$canary" ] || echo "write through" > /sys/block/ublkb0/queue/write_cache
    if [ -z "$left" ]; then
        case $fs in
            ext4) mkfs.ext4 -qF $D ;;
            xfs) mkfs.xfs -qf $D ;;
            btrfs) mkfs.btrfs -qf $D ;;
        esac
        sync $D
    fi
}

clean() {
    # The journal is replayed, and nothing else is to be mended.
    mount -o discard $D /mnt/a
    umount /mnt/a
    case $fs in
        ext4) e2fsck -fn $D ;;
        xfs) xfs_repair -n $D ;;
        btrfs) btrfs check --readonly $D ;;
    esac
}

# judge DEVICE: the folders on it.
judge() {
    local each
    mount -o "${2:-discard}" "$1" /mnt/a
    for each in ${left//;/ }; do vm-load check "/mnt/a/${each%%:*}" "${each#*:}"; done
}

mkdir -p /tmp/state
configure "max_dirty_age = \"$age ms\"" 'ublk.attach = true'
check boot true
check prepare prepare
check clean clean
check whole judge $D
if [ -n "$life" ]; then
    cp /tmp/daemon.log /dev/console
    for old in $(find /mnt/a -mindepth 1 -maxdepth 1 -name 'life.*' -printf '%f\n' | sort -t . -k 2 -n | head -n -2); do
        rm -r "/mnt/a/$old"
    done
    vm-load write "/mnt/a/life.$life" /dev/ttyS1
else
    bare() {
        umount /mnt/a
        zcctl detach hdd
        zcctl stop --flush
        wait_gone
        # Not even mounting may change the bare origin.
        blockdev --setro /dev/vdc
        judge /dev/vdc ro"$([ "$fs" = xfs ] && echo ,norecovery)"
        umount /mnt/a
    }
    check bare-origin bare
fi
