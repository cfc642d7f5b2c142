# Packs the files of the Debian package $1 as $2, with the programs in the folder $3.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
dpkg-deb -x "$1" "$tree"
cp "$3"/* "$tree/usr/bin/"
# Not the root folder: unpacking would change its mode.
tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner -c usr | gzip -9n > "$2"
