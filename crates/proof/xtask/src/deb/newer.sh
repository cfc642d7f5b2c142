# Packs the package $1 as $2, a newer version of itself.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
dpkg-deb -R "$1" "$tree/package"
sed -i 's/^Version: .*/&+newer/' "$tree/package/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$tree/package" "$2"
