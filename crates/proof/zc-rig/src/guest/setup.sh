#!/bin/sh
# Makes what the test machine boots from, in the folder $1: vmlinuz, virtio_blk.ko and root.img, from Debian packages.
# $2: the kernel's meta package, $3: the release from whose backports it is, if it is not this machine's, $4: packages of
# the root, separated by commas, $5: packages from the kernel's backports that are unpacked there. Runs as root.
set -eu
dir=$1 kernel=$2 release=$3 packages=$4 tools=$5
# shellcheck source=/dev/null
. /etc/os-release
[ -n "$release" ] || release=$VERSION_CODENAME
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
[ -n "$site" ] || { echo "this machine's package sources name no $VERSION_CODENAME" >&2; exit 1; }
work=$dir/work
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/kernel"

# The kernel, from backports, without touching this machine's own package sources.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $site $release-backports main" > "$work/sources.list"
backports() {
    tool=$1
    shift
    "$tool" -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Dir::Etc::SourceList=$work/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root "$@"
}
backports apt-get -q update
image=$(backports apt-cache depends "$kernel" | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$image" ] || { echo "there is no $kernel in $release-backports" >&2; exit 1; }
# Newer ones come in parts.
parts=$(backports apt-cache depends "$image" | sed -n 's/.*Depends: \(linux-\(binary\|modules\)-[0-9].*\)/\1/p')
for part in $image $parts; do
    (cd "$work" && backports apt-get -q download "$part")
    dpkg-deb -x "$work/$part"_*.deb "$work/kernel"
done
version=${image#linux-image-}
modules=$(find "$work/kernel" -type d -path "*/lib/modules/$version")
binary=$(find "$work/kernel" -type f -name "vmlinuz*")
driver=$(find "$modules" -name 'virtio_blk.ko*')
[ -n "$modules" ] && [ -n "$binary" ] && [ -n "$driver" ] || { echo "$image lacks parts" >&2; exit 1; }

# The root: a minimal Debian with the packages, and the kernel's modules.
mmdebstrap --quiet --aptopt='APT::Sandbox::User "root"' --variant=minbase --include="$packages" \
    "$VERSION_CODENAME" "$work/tree" "$site"
for tool in $tools; do
    (cd "$work" && backports apt-get -q download "$tool")
    dpkg-deb -x "$work/$tool"_*.deb "$work/tree"
done
mkdir -p "$work/tree/lib/modules"
cp -a "$modules" "$work/tree/lib/modules/"
chroot "$work/tree" depmod "$version"
# For an initramfs of the root's own.
cp "$(find "$work/kernel" -type f -name "config-$version")" "$work/tree/boot/"
mke2fs -q -t ext4 -d "$work/tree" "$work/image" 1400M

case $driver in
    *.xz) xz -dc "$driver" > "$dir/virtio_blk.ko" ;;
    *.zst) zstd -dc "$driver" > "$dir/virtio_blk.ko" ;;
    *) cp "$driver" "$dir/virtio_blk.ko" ;;
esac
cp "$binary" "$dir/vmlinuz"
mv "$work/image" "$dir/root.img"
rm -rf "$work"
