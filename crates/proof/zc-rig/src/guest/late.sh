#!/bin/bash
# Makes the disks that the daemon waits for: first the SSD, then the origin.
modprobe dm_mod
for disk in ssd:vdb hdd:vdc; do
    sleep 2
    device=/dev/${disk#*:}
    dmsetup create "${disk%:*}" --table "0 $(blockdev --getsz "$device") linear $device 0"
done
