# Unpacks the archive $1 into an empty root and uses it there. What is mounted goes with the mount namespace of this shell.
root=$(mktemp -d)
trap 'umount -l "$root/dev" "$root/proc"; rm -rf "$root"' EXIT
chmod 755 "$root"
tar -C "$root" -xzf "$1"
mkdir -p "$root/dev" "$root/proc" "$root/etc" "$root/srv"
mount --rbind /dev "$root/dev"
mount --bind /proc "$root/proc"
inside() { chroot "$root" /usr/bin/"$@"; }
for program in zcached zcctl zcsim; do inside "$program" --version; done
inside zcached check-config --syntax /usr/share/doc/zcached/examples/zcached.toml
# A store, a clone and a cache of it, over TCP; every byte is compared.
inside zcached quickstart --dir /srv/quickstart --input /usr/bin --exit

# The daemon in the sandbox of a user, and its commands.
printf 'keeper:x:12345:12345::/:/\n' > "$root/etc/passwd"
mkdir "$root/srv/cache"
chown 12345 "$root/srv/cache"
cat > "$root/etc/zcached.toml" << END
[cache]
path = "/srv/cache/cache.img"
size = "16 MiB"
state_dir = "/srv/cache/state"
direct = false
[[volume]]
name = "vm"
origin = "/srv/cache/vm.img"
create_size = "16 MiB"
[nbd]
listen = []
[control]
socket = "/srv/cache/control.sock"
[sandbox]
user = "keeper"
END
chroot "$root" /usr/bin/zcached &
daemon=$!
for _ in $(seq 1 300); do
    if inside zcctl --socket /srv/cache/control.sock status; then break; fi
    kill -0 "$daemon"
    sleep 0.1
done
inside zcctl --socket /srv/cache/control.sock stop
wait "$daemon"
echo "the archive is whole"
