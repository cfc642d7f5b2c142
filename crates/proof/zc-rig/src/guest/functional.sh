# What a user does with a device: attach, look at it, partition it, make and check file systems, trim, detach.
D=/dev/ublkb0
Q=/sys/block/ublkb0/queue

attributes() {
    start_daemon
    zcctl ublk probe
    same "$(zcctl attach hdd)" "hdd is $D" attach
    same "$(zcctl attach hdd)" "hdd is $D" "attach again"
    same "$(blockdev --getsize64 $D)" "$(blockdev --getsize64 /dev/vdc)" size
    same "$(cat $Q/write_cache)" "write back" write_cache
    same "$(cat $Q/fua)" 1 fua
    same "$(cat $Q/rotational)" 0 rotational
    same "$(cat $Q/logical_block_size) $(cat $Q/physical_block_size)" "512 4096" blocks
    same "$(cat $Q/max_hw_sectors_kb)" 512 largest
    [ "$(cat $Q/discard_max_bytes)" -gt 0 ]
    [ "$(cat $Q/write_zeroes_max_bytes)" -gt 0 ]
    await /dev/disk/by-id/zcached-hdd
    same "$(readlink -f /dev/disk/by-id/zcached-hdd)" $D link
    zcctl ublk list --json | jq -e '.[0] | .volume == "hdd" and .state == "live" and .served'
    zcctl ublk list --json | jq -e '.[0].queue_cpus == ["0"]'
    daemon_status --json | jq -e '.volumes[0].info.device == "/dev/ublkb0"'
    same "$(cat /proc/"$(cat /tmp/daemon.pid)"/oom_score_adj)" -1000 oom_score_adj
    grep -q 'VmLck:[[:space:]]*[1-9]' /proc/"$(cat /tmp/daemon.pid)"/status
}

# The first and last bytes, odd ranges, the largest request, and what the origin has afterwards.
bytes() {
    dd if=/dev/urandom of=/tmp/data bs=1M count=8 status=none
    dd if=/tmp/data of=$D bs=1M oflag=direct conv=fsync status=none
    cmp -n 8388608 /tmp/data $D
    settle
    cmp -n 8388608 /tmp/data /dev/vdc
    local sectors
    sectors=$(blockdev --getsz $D)
    dd if=/tmp/data of=$D bs=512 count=1 seek=$((sectors - 1)) oflag=direct status=none
    dd if=$D bs=512 count=1 skip=$((sectors - 1)) iflag=direct status=none | cmp -n 512 - /tmp/data
    dd if=/tmp/data of=$D bs=512 count=7 seek=13 skip=99 oflag=direct conv=notrunc status=none
    dd if=$D bs=512 count=7 skip=13 iflag=direct status=none > /tmp/got
    dd if=/tmp/data bs=512 count=7 skip=99 status=none | cmp - /tmp/got
    blkdiscard -z -o 1048576 -l 1048576 $D
    dd if=$D bs=1M skip=1 count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero
}

partitions() {
    wipefs -aq $D
    printf 'label: gpt\nsize=64M\nsize=64M\n' | sfdisk -q $D
    zcctl detach hdd
    same "$(ls /dev/ublkb* 2> /dev/null)" "" "left after detach"
    same "$(ls /dev/ublkc* 2> /dev/null)" "" "left after detach"
    zcctl attach hdd
    await ${D}p2
    await /dev/disk/by-id/zcached-hdd-part2
    wipefs -aq $D
    zcctl detach hdd
}

# filesystem NAME MKFS... : through the device, after a restart, and on the bare origin.
filesystem() {
    local name=$1
    shift
    zcctl attach hdd
    "$@" $D
    mount $D /mnt/a
    mkdir /mnt/a/tree
    cp -a /usr/lib/udev /usr/share/bash-completion /mnt/a/tree/
    dd if=/dev/urandom of=/mnt/a/blob bs=64k count=200 conv=fsync status=none
    for i in $(seq 1 20); do dd if=/mnt/a/blob of=/mnt/a/sync.$i bs=4k count=3 skip=$i conv=fsync status=none; done
    (cd /mnt/a && find . -type f -print0 | sort -z | xargs -0 sha256sum) > /tmp/sums
    if zcctl detach hdd; then echo "a mounted device was detached"; return 1; fi
    umount /mnt/a
    # The origin lacks nothing then, and is whole alone.
    zcctl detach hdd
    daemon_status --json | jq -e '.volumes[0].dirty.bytes // 0 == 0'
    stop_daemon
    # Nothing may be written to it now, not even by mounting.
    blockdev --setro /dev/vdc
    mount -o ro"$([ $name = xfs ] && echo ,norecovery)" /dev/vdc /mnt/a
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    blockdev --setrw /dev/vdc
    start_daemon
    zcctl attach hdd
    case $name in
        ext4) e2fsck -fn $D ;;
        xfs) xfs_repair -n $D ;;
        btrfs) btrfs check --readonly $D ;;
    esac
    mount $D /mnt/a
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    zcctl detach hdd
}

# make_package VERSION: of this machine's own files, some of which differ from version to version.
make_package() {
    local tree=/tmp/package
    rm -rf $tree
    mkdir -p $tree/DEBIAN $tree/opt/sample
    cp -a /usr/lib/udev /usr/share/bash-completion /usr/share/perl5 $tree/opt/sample/
    for i in $(seq 1 40); do seq "$i" "$1" 4000 > "$tree/opt/sample/numbers.$i"; done
    printf 'Package: sample\nVersion: %s\nArchitecture: all\nMaintainer: none\nDescription: sample\n' "$1" \
        > $tree/DEBIAN/control
    (cd $tree && find opt -type f -print0 | xargs -0 md5sum > DEBIAN/md5sums)
    dpkg-deb -Znone -b $tree "/tmp/sample.$1.deb" > /dev/null
}

# Packages are installed, replaced, checked and removed: many small files, each made durable and renamed.
packages() {
    local admin=/mnt/a/var/lib/dpkg
    make_package 1
    make_package 2
    zcctl attach hdd
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    mkdir -p $admin/info $admin/updates $admin/triggers
    touch $admin/status
    for version in 1 2; do
        dpkg --root=/mnt/a --force-not-root --force-script-chrootless -i "/tmp/sample.$version.deb"
        echo 3 > /proc/sys/vm/drop_caches
        same "$(dpkg --root=/mnt/a --verify sample)" "" "changed files"
        (cd /mnt/a && md5sum --quiet -c "$admin/info/sample.md5sums")
    done
    # The daemon that knows all this is gone; the next one has it from the SSD.
    umount /mnt/a
    zcctl detach hdd
    stop_daemon
    start_daemon
    zcctl attach hdd
    e2fsck -fn $D
    mount $D /mnt/a
    (cd /mnt/a && md5sum --quiet -c "$admin/info/sample.md5sums")
    cmp <(cd /tmp/package && find opt | sort) <(cd /mnt/a && find opt | sort)
    dpkg --root=/mnt/a --force-not-root --force-script-chrootless --purge sample
    same "$(ls /mnt/a/opt 2> /dev/null)" "" "left of a package"
    umount /mnt/a
    zcctl detach hdd
}

trimmed() {
    local before
    zcctl attach hdd
    mkfs.ext4 -qF -E nodiscard $D
    mount $D /mnt/a
    dd if=/dev/urandom of=/mnt/a/big bs=1M count=24 conv=fsync status=none
    rm /mnt/a/big
    sync
    before=$(discarded vdc)
    fstrim -v /mnt/a
    umount /mnt/a
    if [ "$mode" != write-back ]; then
        # In write-back it becomes zeroing that may unmap, which the kernel does not count.
        echo "$before $(discarded vdc)"
        [ $(($(discarded vdc) - before)) -ge 49152 ]
    fi
    dd if=/dev/urandom of=$D bs=1M count=24 seek=64 oflag=direct conv=fsync status=none
    settle
    blkdiscard -o $((64 << 20)) -l $((24 << 20)) $D
    settle
    dd if=$D bs=1M count=24 skip=64 iflag=direct status=none | cmp -n $((24 << 20)) - /dev/zero
    dd if=/dev/vdc bs=1M count=24 skip=64 iflag=direct status=none | cmp -n $((24 << 20)) - /dev/zero
    zcctl detach hdd
}

# What is mounted when the daemon ends stays, and goes on with the next one.
stop_and_start() {
    zcctl attach hdd
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    echo one > /mnt/a/file
    sync
    stop_daemon
    zcctl ublk list
    zcctl ublk list --json | jq -e '.[0].state == "quiesced"'
    if zcctl ublk gc; then echo "a mounted device was removed"; return 1; fi
    dd if=/dev/zero of=/mnt/a/waits bs=4k count=1 oflag=direct status=none &
    local waiting=$!
    start_daemon
    wait $waiting
    cat /mnt/a/file
    umount /mnt/a
    # No program uses it now: an orderly end takes it away.
    stop_daemon
    same "$(ls /dev/ublk[bc]* 2> /dev/null)" "" "left after the end"
    start_daemon
}

# A daemon that is gone for good leaves a device that can be removed without it.
collected() {
    zcctl attach hdd
    kill -KILL "$(cat /tmp/daemon.pid)"
    wait_gone
    for _ in $(seq 1 100); do
        if zcctl ublk list --json | jq -e '.[0].state == "quiesced"' > /dev/null; then break; fi
        sleep 0.1
    done
    zcctl ublk gc
    same "$(ls /dev/ublk[bc]* 2> /dev/null)" "" "left after gc"
    start_daemon
}

cycles() {
    for _ in $(seq 1 "$1"); do
        zcctl attach hdd > /dev/null
        zcctl detach hdd > /dev/null
    done
}

# The kernel's NBD client, with two connections.
kernel_nbd() {
    zcctl attach hdd
    if zcctl attach hdd --nbd; then echo "a volume is two devices"; return 1; fi
    zcctl detach hdd
    same "$(zcctl attach hdd --nbd)" "hdd is /dev/nbd0" attach
    same "$(zcctl attach hdd --nbd)" "hdd is /dev/nbd0" "attach again"
    await /dev/disk/by-id/zcached-hdd
    same "$(readlink -f /dev/disk/by-id/zcached-hdd)" /dev/nbd0 link
    mkfs.ext4 -qF /dev/nbd0
    mount /dev/nbd0 /mnt/a
    cp -a /usr/lib/udev /mnt/a/
    (cd /mnt/a && find . -type f -print0 | xargs -0 sha256sum) > /tmp/sums
    umount /mnt/a
    e2fsck -fn /dev/nbd0
    mount /dev/nbd0 /mnt/a
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    if zcctl detach hdd --nbd; then echo "a mounted device was detached"; return 1; fi
    umount /mnt/a
    zcctl detach hdd --nbd
    [ ! -e /sys/block/nbd0/pid ]
    if zcctl detach hdd --nbd; then echo "what is not attached was detached"; return 1; fi
}

verified() {
    [ -b $D ]
    fio --name=v --filename=$D --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=512-128k \
        --bs_unaligned=0 --blockalign=512 --size=48m --verify=crc32c --verify_fatal=1 --randseed=7 --output=/tmp/fio
}

# The other ways to set a device up.
variant() {
    configure 'ublk.attach = true' "$@"
    stop_daemon
    start_daemon
    await $D
    verified
    dd if=/tmp/data of=$D bs=8M count=1 oflag=direct status=none
    dd if=$D bs=8M count=1 iflag=direct status=none | cmp - /tmp/data
    stop_daemon
    configure
    start_daemon
}

# within WHAT RATE BURST COMMAND...: the command has requests that wait for a limit, and what it brought through is no
# more than the limit lets through in the time that passed on the daemon's clock. WHAT is a sum of counters.
within() {
    local what=$1 rate=$2 burst=$3
    shift 3
    zcctl stats --json > /tmp/before
    "$@"
    zcctl stats --json > /tmp/after
    jq -en --slurpfile before /tmp/before --slurpfile after /tmp/after --argjson rate "$rate" --argjson burst "$burst" "
        (\$after[0].uptime_ms - \$before[0].uptime_ms + 1) as \$ms
        | [\$before[0], \$after[0] | .traffic.hdd | $what] as [\$from, \$to]
        | [\$before[0], \$after[0] | .limits.hdd | .waited, .waited_us] as [\$waited, \$us, \$waited_since, \$us_since]
        | {ms: \$ms, served: (\$to - \$from), waited: (\$waited_since - \$waited)} | debug
        | .served > \$burst and .served <= \$burst + \$rate * \$ms / 1000 + 1
            and \$waited_since > \$waited and \$us_since > \$us"
}

waited() { zcctl stats --json | jq .limits.hdd.waited; }

# requests COUNT: so many small ones, several at a time.
requests() {
    fio --name=l --filename=$D --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw --bs=4k --size=32m --number_ios="$1" \
        --output=/tmp/fio
}

# Limits far below what any machine does, of requests and of bytes, hold on a block device, also for what the page cache
# writes when it is detached, and they can be lifted.
limited() {
    local before
    zcctl attach hdd
    dd if=/dev/urandom of=/tmp/data bs=1M count=3 status=none
    zcctl volume set hdd limits.iops=10 limits.iops_burst=4
    within '.reads + .writes' 10 4 requests 40
    zcctl volume set hdd limits.iops=0 limits.bytes_per_s="256 KiB" limits.bytes_burst="512 KiB"
    # The burst is the largest request, so that none is ahead of the limit at the end.
    within '.read_bytes + .write_bytes' 262144 524288 dd if=/tmp/data of=$D bs=128k count=12 oflag=direct status=none
    # As long as it is open, the kernel keeps what is written.
    exec 9< $D
    dd if=/tmp/data of=$D bs=128k count=12 skip=12 seek=12 status=none
    within .write_bytes 262144 524288 zcctl detach hdd
    exec 9<&-
    zcctl volume set hdd limits.bytes_per_s=0
    zcctl attach hdd
    cmp -n $((3 << 20)) /tmp/data $D
    before=$(waited)
    requests 500
    same "$(waited)" "$before" "requests that waited without a limit"
    zcctl detach hdd
    configure
    zcctl reload
}

# The cache goes to another device and back under a mounted file system whose files are made durable meanwhile. In
# write-back the writers stand still for the move: the slow disk would not get what they write beside what is dirty.
replaced() {
    local load device
    zcctl attach hdd
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    : > /tmp/report
    vm-load write /mnt/a/life /tmp/report > /tmp/load.txt 2>&1 &
    load=$!
    for device in /dev/vdd /dev/vdb; do
        reported $(($(wc -l < /tmp/report) + 60))
        if [ "$mode" = write-back ]; then kill -STOP $load; fi
        zcctl cache replace --force $device
        kill -CONT $load
        daemon_status --json | jq -e ".cache | .healthy and .path == \"$device\""
        same "$(cat /sys/block/ublkb0/ro)" 0 "read-only"
    done
    if [ "$mode" != write-back ]; then
        # In write-back a kill may take what no flush covered, and the device with it.
        kill -KILL "$(cat /tmp/daemon.pid)"
        wait_gone
        start_daemon
    fi
    reported $(($(wc -l < /tmp/report) + 60))
    kill $load
    wait $load || true
    umount /mnt/a
    e2fsck -fn $D
    mount $D /mnt/a
    vm-load check /mnt/a/life "$(steps)"
    umount /mnt/a
    # The origin has it all when the device is gone.
    zcctl detach hdd
    e2fsck -fn /dev/vdc
    wipefs -aq /dev/vdd
}

paced_load() {
    exec fio --name=r --filename=$D --direct=1 --ioengine=libaio --iodepth=4 --rw=randrw --bs=4k,8k --size=16m \
        --rate_iops=40,40 --verify=crc32c --verify_fatal=1 --verify_backlog=64 --time_based --runtime=600 --randseed=5 \
        --output=/tmp/fio
}

# written SECTORS: waits until the volume's device was written so much further.
written() {
    local until
    until=$(($(awk '{ print $7 }' /sys/block/ublkb0/stat) + $1))
    for _ in $(seq 1 600); do
        if [ "$(awk '{ print $7 }' /sys/block/ublkb0/stat)" -ge "$until" ]; then return 0; fi
        sleep 0.1
    done
    return 1
}

# The cache moves there and back while fio writes and verifies, no faster than the slow disk takes it.
replaced_under_load() {
    local load device status=0
    zcctl attach hdd
    paced_load &
    load=$!
    for device in /dev/vdd /dev/vdb; do
        written 2000
        zcctl cache replace --force $device
        kill -0 $load
        daemon_status --json | jq -e ".cache | .healthy and .path == \"$device\""
    done
    written 2000
    kill -INT $load
    wait $load || status=$?
    cat /tmp/fio
    # As fio ends when it is interrupted.
    [ "$status" -eq 0 ] || [ "$status" -eq 128 ]
    grep -q 'err= 0' /tmp/fio
    fails grep -qi 'verify.*fail\|I/O error' /tmp/fio
    dmesg > /tmp/kernel
    fails grep -i 'I/O error.*ublk' /tmp/kernel
    zcctl detach hdd
    wipefs -aq /dev/vdd
}

SSD=$(basename "$(readlink -f /sys/block/vdb/device)")
ssd() { echo "$SSD" > "/sys/bus/virtio/drivers/virtio_blk/$1"; }

# The SSD is pulled out under load and plugged in again before the next start. In write-through no client notices; in
# write-back nothing more is promised, and what was is there when the SSD is back.
pulled() {
    local load
    zcctl attach hdd
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    : > /tmp/report
    vm-load write /mnt/a/life /tmp/report > /tmp/load.txt 2>&1 &
    load=$!
    reported 60
    ssd unbind
    if [ "$mode" = write-back ]; then
        if wait $load; then echo "the load ended well"; return 1; fi
        cat /tmp/load.txt
        umount /mnt/a
        zcctl detach hdd --force --keep-dirty
    else
        reported $(($(wc -l < /tmp/report) + 60))
        kill $load
        wait $load || true
        umount /mnt/a
        e2fsck -fn $D
        daemon_status --json | jq -e '.cache.healthy | not'
        zcctl detach hdd
    fi
    stop_daemon
    ssd bind
    await /dev/vdb
    start_daemon
    zcctl attach hdd
    mount $D /mnt/a
    vm-load check /mnt/a/life "$(steps)"
    umount /mnt/a
    e2fsck -fn $D
    daemon_status --json | jq -e '.cache.healthy'
    zcctl detach hdd
}

# The machine comes up without its SSD, or the daemon is killed while it is away: the volume is there all the same, also
# for what is mounted, and what is written then is not hidden by the cache when it is back.
without_ssd() {
    zcctl attach hdd
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    dd if=/dev/urandom of=/mnt/a/before bs=1M count=8 conv=fsync status=none
    cp /mnt/a/before /mnt/a/changed
    sync
    if [ "$mode" = write-back ]; then
        # Not before the origin has everything.
        umount /mnt/a
        zcctl detach hdd
        stop_daemon
        ssd unbind
        start_daemon
        zcctl attach hdd
        mount $D /mnt/a
    else
        ssd unbind
        kill -KILL "$(cat /tmp/daemon.pid)"
        wait_gone
        start_daemon
    fi
    daemon_status --json | jq -e '.cache.healthy | not'
    dd if=/dev/urandom of=/mnt/a/changed bs=1M count=8 conv=notrunc,fsync status=none
    (cd /mnt/a && sha256sum before changed) > /tmp/sums
    echo 3 > /proc/sys/vm/drop_caches
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    zcctl detach hdd
    stop_daemon
    ssd bind
    await /dev/vdb
    start_daemon
    daemon_status --json | jq -e '.cache.healthy'
    zcctl attach hdd
    mount $D /mnt/a
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    e2fsck -fn $D
    zcctl detach hdd
}

# origin MIB: the origin is the beginning of the slow disk, and has this length from now on.
origin() {
    dmsetup load growing --table "0 $(($1 << 11)) linear /dev/vdc 0"
    dmsetup resume growing
}

# A cache and a daemon for another origin; without one, for the usual one again.
afresh() {
    rm -rf /tmp/state
    zcctl format --force /dev/vdb
    configure
    sed -i "s,\"/dev/vdc\",\"${1:-/dev/vdc}\"," /tmp/zcached.toml
    start_daemon
}

# A volume comes to a daemon that serves another, with a device of its own, and outlives a kill under a file system.
added() {
    local more
    zcctl attach hdd
    configure "$(printf '[[volume]]\nname = "more"\norigin = "/tmp/more.img"\ncreate_size = "96 MiB"\nmode = "%s"\n' "$mode")" \
        'ack = "durable"' 'ublk.attach = true'
    zcctl reload | tee /tmp/said
    grep -q 'applied.*"more"' /tmp/said
    await /dev/disk/by-id/zcached-more
    more=$(readlink -f /dev/disk/by-id/zcached-more)
    mkfs.ext4 -qF "$more"
    mount "$more" /mnt/a
    dd if=/dev/urandom of=/mnt/a/blob bs=1M count=24 conv=fsync status=none
    (cd /mnt/a && sha256sum blob) > /tmp/sums
    kill -KILL "$(cat /tmp/daemon.pid)"
    wait_gone
    start_daemon
    echo 3 > /proc/sys/vm/drop_caches
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    e2fsck -fn "$more"
    zcctl detach more
    zcctl detach hdd
    stop_daemon
    e2fsck -fn /tmp/more.img
    rm /tmp/more.img
    afresh
}

# The origin grows under a file system. The device does, too, where the kernel can; else it is said what helps.
resized() {
    local able
    able=$(($(zcctl ublk probe | grep -o '0x[0-9a-f]*') & 0x400))
    stop_daemon
    # What is behind the old end may be anything but what a cache would make up.
    dd if=/dev/urandom of=/dev/vdc bs=1M seek=128 count=2 oflag=direct status=none
    dd if=/dev/vdc of=/tmp/behind bs=1M skip=128 count=2 iflag=direct status=none
    modprobe dm-mod
    dmsetup create growing --notable
    origin 128
    await /dev/mapper/growing
    afresh /dev/mapper/growing
    zcctl attach hdd
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    dd if=/dev/urandom of=/mnt/a/before bs=1M count=16 conv=fsync status=none
    if [ $able != 0 ]; then zcctl resize hdd | grep -qx "so has $D"; fi
    if zcctl resize hdd --size "1 GiB"; then echo "a disk was made longer"; return 1; fi
    if zcctl resize hdd --size "64 MiB"; then echo "a volume was made smaller"; return 1; fi
    origin 192
    if [ $able = 0 ]; then
        if zcctl resize hdd > /tmp/said; then echo "this kernel cannot"; return 1; fi
        grep -q "Linux 6.16" /tmp/said
        same "$(blockdev --getsize64 $D)" $((128 << 20)) "size of the device"
        cmp /mnt/a/before /mnt/a/before
        umount /mnt/a
        zcctl detach hdd
        zcctl attach hdd
        mount $D /mnt/a
    else
        zcctl resize hdd
    fi
    same "$(blockdev --getsize64 $D)" $((192 << 20)) "size of the device"
    same "$(daemon_status --json | jq '.volumes[0].info.size_bytes')" $((192 << 20)) "size of the volume"
    for _ in 1 2; do dd if=$D bs=1M skip=128 count=2 iflag=direct status=none | cmp - /tmp/behind; done
    resize2fs $D
    dd if=/dev/urandom of=/mnt/a/after bs=1M count=96 conv=fsync status=none
    (cd /mnt/a && sha256sum before after) > /tmp/sums
    if [ "$mode" != write-back ]; then
        # It grows while no daemon runs, and the next one takes the mounted device over.
        stop_daemon
        origin 256
        start_daemon
        same "$(blockdev --getsize64 $D)" $(((able ? 256 : 192) << 20)) "size of the device that was taken over"
    fi
    echo 3 > /proc/sys/vm/drop_caches
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    e2fsck -fn $D
    zcctl detach hdd
    stop_daemon
    mount -o ro /dev/mapper/growing /mnt/a
    (cd /mnt/a && sha256sum --quiet -c /tmp/sums)
    umount /mnt/a
    dmsetup remove growing
    afresh
}

configure
check format zcctl format /dev/vdb
check attributes attributes
check bytes bytes
check fio-verify verified
check partitions partitions
check ext4 filesystem ext4 mkfs.ext4 -qF
check xfs filesystem xfs mkfs.xfs -qf
check btrfs filesystem btrfs mkfs.btrfs -qf
check packages packages
check discard trimmed
check stop-and-start stop_and_start
check gc collected
check kernel-nbd kernel_nbd
check attach-detach cycles "${rounds:-100}"
check user-copy variant 'ublk.copy = "user"'
check queues-and-large variant 'ublk.queues = 4' 'ublk.queue_depth = 32' 'ublk.request_max = "32 MiB"'
check limits limited
check replace-cache replaced
check replace-under-load replaced_under_load
check added-volume added
check resize resized
check pulled-ssd pulled
check without-ssd without_ssd
check end stop_daemon
