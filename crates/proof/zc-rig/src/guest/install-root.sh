# Makes the machine's own root disk the origin of a volume, for the boots that follow, with an initramfs of Debian's
# initramfs-tools. vdd is the cache, so that it can be missing; vdc has the state directory.

# The programs of the package.
PATH=/usr/sbin:/usr/bin:/sbin:/bin

install_package() {
    # The package has its own.
    rm /etc/udev/rules.d/60-zcached.rules
    rmdir /etc/udev/rules.d 2> /dev/null || true
    dpkg -i /payload/zcached.deb
    mkdir -p /var/log/journal
    # /payload is in memory; the boots that follow find what they need on the disk.
    mount --bind / /mnt/a
    cp /payload/*.sh /payload/*.deb /mnt/a/payload/
    umount /mnt/a
}

make_cache() { zcctl format /dev/vdd; }

# As small as the book says that it may be.
make_state() { mkfs.ext4 -q /dev/vdc 16M; }

configure_root() {
    cat > /etc/zcached.toml << END
[cache]
path = "/dev/vdd"
max_ram = "64 MiB"
wait_max = "10 s"

[[volume]]
name = "root"
origin = "/dev/vda"
mode = "$mode"
ack = "durable"
ublk.attach = true

[nbd]
listen = ["127.0.0.1:10809"]
END
    zcached check-config --syntax /etc/zcached.toml
    echo "UUID=$(blkid -o value -s UUID /dev/vda) / ext4 errors=remount-ro 0 1" > /etc/fstab
    # This unit is for other volumes. Beside the daemon of the initramfs it must stay away.
    systemctl enable zcached
    systemctl set-default multi-user.target
    cat > /etc/systemd/system/look.service << 'END'
[Unit]
Description=looks at what came of the boot
[Service]
ExecStart=/payload/rooted.sh
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
END
    systemctl enable look.service
}

make_initramfs() {
    cp /usr/share/doc/zcached/examples/zcached.conf /etc/initramfs-tools/conf.d/zcached
    sed -i "s/^ZCACHED_STATE=.*/ZCACHED_STATE=UUID=$(blkid -o value -s UUID /dev/vdc)/" /etc/initramfs-tools/conf.d/zcached
    [ "$mode" = write-through ] || sed -i s/ZCACHED_FLUSH=no/ZCACHED_FLUSH=yes/ /etc/initramfs-tools/conf.d/zcached
    # All modules of the kernel take long to pack here, and so does what compresses well.
    printf 'MODULES=list\nCOMPRESS=gzip\nCOMPRESSLEVEL=1\n' > /etc/initramfs-tools/conf.d/quick
    echo virtio_blk > /etc/initramfs-tools/modules
    local version
    version=$(uname -r)
    update-initramfs -c -k "$version"
    cp "/boot/initrd.img-$version" /boot/initrd.img
}

check install install_package
check cache make_cache
check state make_state
check configure configure_root
limit=600 check initramfs make_initramfs
sync
mount -o remount,ro /
