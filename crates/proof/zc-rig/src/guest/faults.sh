# Disks that fail for a while and are whole again, under the cache and under the origin: dm-flakey in between lets
# everything through, or fails all, reads or writes. What was promised has to be there afterwards.
D=/dev/ublkb0
limit=90

# turn NAME WHAT: from now on everything of a disk passes, or all, writes or reads fail.
turn() {
    local disk=/dev/vdb how="0 1000000"
    [ "$1" = ssd ] || disk=/dev/vdc
    case $2 in
        well) how="1000000 0" ;;
        reads) how="$how 1 error_reads" ;;
        writes) how="$how 1 error_writes" ;;
    esac
    dmsetup load "$1" --table "0 $(blockdev --getsz $disk) flakey $disk 0 $how"
    dmsetup resume "$1"
}

prepare() {
    modprobe dm-flakey
    for each in ssd hdd; do
        dmsetup create $each --notable
        turn $each well
        await /dev/mapper/$each
    done
    configure 'ublk.attach = true' 'max_dirty_age = "200 ms"'
    sed -i 's,"/dev/vdb","/dev/mapper/ssd",; s,"/dev/vdc","/dev/mapper/hdd",' /tmp/zcached.toml
    zcctl format /dev/mapper/ssd
    start_daemon
    await $D
    mkfs.ext4 -qF $D
}

begin() {
    D=$(readlink -f /dev/disk/by-id/zcached-hdd)
    mount "$D" /mnt/a
    : > /tmp/report
    vm-load write "/mnt/a/life.$1" /tmp/report > /tmp/load.txt 2>&1 &
    echo $! > /tmp/load.pid
    reported 40
}

ends_with_error() {
    if wait "$(cat /tmp/load.pid)"; then echo "the load ended well"; return 1; fi
    cat /tmp/load.txt
    umount /mnt/a
}

goes_on() {
    reported $(($(wc -l < /tmp/report) + 60))
    stops
}

# counted COUNTER: waits until the daemon has counted one of these. Faults that no request met prove nothing.
counted() {
    for _ in $(seq 1 300); do
        if zcctl stats --json | jq -e "[.. | .$1? // empty] | any(. > 0)" > /dev/null; then return 0; fi
        sleep 0.1
    done
    echo "$1 stays 0"
    return 1
}

# whole NAME: the file system and what was durable on it.
whole() {
    await /dev/disk/by-id/zcached-hdd
    D=$(readlink -f /dev/disk/by-id/zcached-hdd)
    mount "$D" /mnt/a
    vm-load check "/mnt/a/life.$1" "$(steps)"
    umount /mnt/a
    e2fsck -fn "$D"
}

# Every file from the disk. Whoever cannot have one is to be told, and not to wait for ever.
read_all() {
    echo 3 > /proc/sys/vm/drop_caches
    cat /mnt/a/life.*/* > /dev/null
}

stops() {
    kill "$(cat /tmp/load.pid)"
    wait "$(cat /tmp/load.pid)" || true
}

# The cache device fails. In write-through clients do not notice. In write-back nothing more is promised, and what was is
# there when the device is.
ssd_fails() {
    begin "$1"
    turn ssd "$1"
    case $mode.$1 in
        write-back.reads)
            read_all || true
            # It may be destaging that meets them.
            counted device_errors
            # After many errors in a row the volume is fenced, and the load has ended by itself.
            stops || true
            umount /mnt/a
            ;;
        write-back.*)
            ends_with_error
            daemon_status --json | jq -e '.cache.healthy | not'
            ;;
        *)
            goes_on
            read_all
            if [ "$1" = reads ]; then counted device_read_errors; fi
            umount /mnt/a
            e2fsck -fn "$D"
            ;;
    esac
    turn ssd well
    if daemon_status --json | jq -e '.cache.healthy | not'; then
        zcctl reattach
        # The kernel tells of the writes that failed, then the daemon of the acknowledged writes that are lost, once each.
        sync "$D" || sync "$D" || sync "$D"
    fi
    daemon_status --json | jq -e '.cache.healthy'
    whole "$1"
}

# The origin fails. In write-through, clients are told. In write-back what the cache has goes on, and the origin gets it
# when it is back.
hdd_fails() {
    begin "hdd-$1"
    turn hdd "$1"
    if [ "$mode" = write-back ]; then
        goes_on
        counted destage_failures
        daemon_status --json | jq -e '.volumes[0].dirty.bytes > 0'
        turn hdd well
        umount /mnt/a
    else
        ends_with_error
        turn hdd well
        # What failed is the file system's to mend.
        mount "$D" /mnt/a
        umount /mnt/a
        e2fsck -fp "$D" || [ $? -eq 1 ]
    fi
    whole "hdd-$1"
    settle
    daemon_status --json | jq -e '.volumes[0].dirty.bytes // 0 == 0'
}

bare() {
    zcctl detach hdd
    stop_daemon
    mount -o ro /dev/mapper/hdd /mnt/a
    vm-load check /mnt/a/life.hdd-writes "$(steps)"
    umount /mnt/a
}

check prepare prepare
check ssd-fails ssd_fails all
check ssd-fails-writes ssd_fails writes
check ssd-fails-reads ssd_fails reads
check origin-fails hdd_fails all
check origin-fails-writes hdd_fails writes
check bare-origin bare
