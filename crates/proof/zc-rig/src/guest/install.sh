# Installs the package as an administrator does, for the boots that follow: an existing disk with a file system becomes
# a volume, and fstab mounts it. Both disks of the daemon appear some seconds after systemd began.

# What every boot of the root disk shall start.
unit() { cat > "/etc/systemd/system/$1"; systemctl enable "$1"; }

install_package() {
    # The package has its own.
    rm /etc/udev/rules.d/60-zcached.rules
    rmdir /etc/udev/rules.d 2> /dev/null || true
    dpkg -i /payload/zcached.deb
    mkdir -p /var/log/journal
}

existing_disk() {
    mkfs.ext4 -q /dev/vdc
    mount /dev/vdc /mnt/a
    echo "written to the bare disk" > /mnt/a/before
    umount /mnt/a
    zcctl format /dev/vdb
}

configure_boot() {
    cat > /etc/zcached.toml << 'END'
[cache]
path = "/dev/mapper/ssd"
max_ram = "64 MiB"
wait_max = "1 min"

[[volume]]
name = "hdd"
origin = "/dev/mapper/hdd"
mode = "write-back"
ack = "durable"
ublk.attach = true

[nbd]
listen = []
END
    zcached check-config --syntax /etc/zcached.toml
    mkdir -p /data
    echo '/dev/disk/by-id/zcached-hdd /data ext4 defaults,x-systemd.after=zcached.service 0 2' >> /etc/fstab
    systemctl enable zcached
    systemctl set-default multi-user.target
    unit late-disks.service << 'END'
[Unit]
Description=disks that appear late
DefaultDependencies=no
After=systemd-udevd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/payload/late.sh
[Install]
WantedBy=sysinit.target
END
    unit look.service << 'END'
[Unit]
Description=looks at what came of the boot
[Service]
ExecStart=/payload/booted.sh
[Install]
WantedBy=multi-user.target
END
}

check install install_package
check existing-disk existing_disk
check configure configure_boot
sync
mount -o remount,ro /
