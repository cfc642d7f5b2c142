# The daemon is killed again and again under fio, which must not notice: no error, no wrong byte, no hang.
D=/dev/ublkb0

load() {
    exec fio --name=crash --filename=$D --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw --bs=4k,8k \
        --size=32m --verify=crc32c --verify_fatal=1 --verify_backlog=64 --time_based --runtime=3600 \
        --output=/tmp/fio.txt --randseed=11
}

crashes() {
    local slowest=0 start took state i
    load &
    echo $! > /tmp/fio.pid
    for i in $(seq 1 "$1"); do
        sleep "0.$((RANDOM % 9 + 1))"
        kill -0 "$(cat /tmp/fio.pid)" || { echo "fio ended before kill $i"; cat /tmp/fio.txt; return 1; }
        kill -KILL "$(cat /tmp/daemon.pid)"
        start=$EPOCHREALTIME
        start_daemon
        took=$(echo "$EPOCHREALTIME $start" | awk '{ printf "%d", ($1 - $2) * 1000 }')
        [ "$took" -le "$slowest" ] || slowest=$took
    done
    state=$(zcctl ublk list --json | jq -r '.[0].state')
    [ "$state" = live ]
    # An orderly end of the load: what it had in flight ends well.
    kill -INT "$(cat /tmp/fio.pid)"
    wait "$(cat /tmp/fio.pid)" || [ $? -eq 128 ]
    cat /tmp/fio.txt
    grep -q 'err= 0' /tmp/fio.txt
    if grep -qi 'verify.*fail\|I/O error' /tmp/fio.txt; then return 1; fi
    if dmesg | grep -i 'I/O error.*ublk'; then return 1; fi
    echo "$slowest" > /tmp/slowest
}

prepare() {
    start_daemon
    await $D
    [ -b $D ]
}

# Acknowledged writes that were in memory alone are gone with the daemon: what is mounted must not go on as if they were
# there. It fails, and what was flushed is there when it is mounted again.
told() {
    configure 'ublk.attach = true' 'ack = "volatile"'
    start_daemon
    await $D
    mkfs.ext4 -qF $D
    mount $D /mnt/a
    dd if=/dev/urandom of=/tmp/data bs=64k count=40 status=none
    dd if=/tmp/data of=/mnt/a/flushed bs=64k conv=fsync status=none
    sync /mnt/a
    dd if=/tmp/data of=/mnt/a/not-flushed bs=64k oflag=direct status=none
    kill -KILL "$(cat /tmp/daemon.pid)"
    # What counts is how the writes were acknowledged, not how the next ones are to be.
    configure 'ublk.attach = true' 'ack = "durable"'
    start_daemon
    if dd if=/dev/zero of=/mnt/a/more bs=4k count=1 conv=fsync status=none; then
        echo "a file system goes on above writes that were lost"
        return 1
    fi
    umount /mnt/a
    await /dev/disk/by-id/zcached-hdd
    mount /dev/disk/by-id/zcached-hdd /mnt/a
    cmp /tmp/data /mnt/a/flushed
    umount /mnt/a
    e2fsck -fn /dev/disk/by-id/zcached-hdd
}

limit=$((180 + 10 * ${rounds:-10}))
configure 'ublk.attach = true' 'ack = "durable"'
check format zcctl format /dev/vdb
check attach prepare
check kill-loop crashes "${rounds:-10}"
figure slowest_recovery_ms "$(cat /tmp/slowest 2> /dev/null || echo -1)"
check end stop_daemon
if [ "$mode" = write-back ]; then
    check volatile told
    check end-again stop_daemon
fi
