# Before a power cut: files are written and made durable one after the other; each is told once it is durable.
D=/dev/ublkb0

prepare() {
    start_daemon
    await $D
    # The first time, a file system is made.
    mount $D /mnt/a 2> /dev/null || { mkfs.ext4 -qF $D && mount $D /mnt/a; }
}

# Contents of file number $1, always the same.
contents() { head -c $((($1 % 7 + 1) * 3000)) < <(yes "file $1"); }

mkdir -p /tmp/state
# The first time, everything is made.
mount /dev/vdd /tmp/state 2> /dev/null ||
    { mkfs.ext4 -qF /dev/vdd && mount /dev/vdd /tmp/state && zcctl format /dev/vdb; }
configure 'ublk.attach = true'
check prepare prepare
last=$(find /mnt/a -name 'f.*' | sed 's/.*f\.//' | sort -n | tail -n 1)
number=${last:-0}
while true; do
    number=$((number + 1))
    contents $number > /mnt/a/new || break
    sync /mnt/a/new
    mv /mnt/a/new /mnt/a/f.$number
    sync /mnt/a
    result "{\"durable\":$number}"
done
