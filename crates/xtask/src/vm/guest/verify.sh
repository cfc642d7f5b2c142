# After a power cut: the file system replays its journal and is clean, and every file that was durable is whole.
D=/dev/ublkb0

contents() { head -c $((($1 % 7 + 1) * 3000)) < <(yes "file $1"); }

prepare() {
    start_daemon
    await $D
}

clean() {
    mount $D /mnt/a
    umount /mnt/a
    e2fsck -fn $D
}

# Files 1 to $1 were durable.
whole() {
    mount -o ro $D /mnt/a
    for number in $(seq 1 "$1"); do
        contents "$number" | cmp - "/mnt/a/f.$number"
    done
    umount /mnt/a
}

mkdir -p /tmp/state
mount /dev/vdd /tmp/state
configure 'ublk.attach = true'
check prepare prepare
check clean clean
check whole whole "$rounds"
check end stop_daemon
# The origin alone is as good.
origin() {
    mount -o ro /dev/vdc /mnt/a
    for number in $(seq 1 "$1"); do
        contents "$number" | cmp - "/mnt/a/f.$number"
    done
    umount /mnt/a
}
check origin origin "$rounds"
