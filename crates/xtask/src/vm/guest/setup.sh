#!/bin/sh
# Makes what the test machine boots from, in the folder $1: vmlinuz, virtio_blk.ko and root.img, from Debian packages.
# $2: the kernel's meta package, $3: packages of the root, separated by commas. Runs as root.
set -eu
dir=$1 kernel=$2 packages=$3
# shellcheck source=/dev/null
. /etc/os-release
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
[ -n "$site" ] || { echo "this machine's package sources name no $VERSION_CODENAME" >&2; exit 1; }
work=$dir/work
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/kernel"

# The kernel, from backports, without touching this machine's own package sources.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $site $VERSION_CODENAME-backports main" > "$work/sources.list"
backports() {
    tool=$1
    shift
    "$tool" -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Dir::Etc::SourceList=$work/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root "$@"
}
backports apt-get -q update
image=$(backports apt-cache depends "$kernel" | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$image" ] || { echo "there is no $kernel in $VERSION_CODENAME-backports" >&2; exit 1; }
(cd "$work" && backports apt-get -q download "$image")
dpkg-deb -x "$work/$image"_*.deb "$work/kernel"
version=${image#linux-image-}

# The root: a minimal Debian with the packages, and the kernel's modules.
mmdebstrap --quiet --aptopt='APT::Sandbox::User "root"' --variant=minbase --include="$packages" \
    "$VERSION_CODENAME" "$work/tree" "$site"
cp -a "$work/kernel/lib/modules" "$work/tree/lib/"
chroot "$work/tree" depmod "$version"
mke2fs -q -t ext4 -d "$work/tree" "$work/image" 1400M

xz -dc "$work/kernel/lib/modules/$version/kernel/drivers/block/virtio_blk.ko.xz" > "$dir/virtio_blk.ko"
cp "$work/kernel/boot/vmlinuz-$version" "$dir/vmlinuz"
mv "$work/image" "$dir/root.img"
rm -rf "$work"
