#!/bin/busybox sh
# First process of the test machine: from the initial memory to the root disk, with our programs in /payload.
/bin/busybox mkdir -p /proc /sys /dev /newroot
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox insmod /virtio_blk.ko
/bin/busybox mount -t ext4 /dev/vda /newroot || /bin/busybox poweroff -f
/bin/busybox mkdir -p /newroot/payload
/bin/busybox mount -t tmpfs payload /newroot/payload
/bin/busybox cp -a /payload/. /newroot/payload/
for place in proc sys dev; do /bin/busybox mount --move /$place /newroot/$place; done
# The root disk's own systemd, where that is what is tried.
next=/payload/main.sh
/bin/busybox grep -q scenario=booted /newroot/proc/cmdline && next=/lib/systemd/systemd
exec /bin/busybox switch_root /newroot $next
