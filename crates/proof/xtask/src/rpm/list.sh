# Installs the package $1 in an empty root, without its scripts, and prints the paths of all files.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
rpm --checksig "$1" >&2
rpm --root "$root" --dbpath /db --install --nodeps --noscripts "$1" >&2
rm -rf "$root/db"
"$root/usr/bin/zcached" --version >&2
cd "$root"
find . ! -type d | sed s/.//
