# The caches that are compared. Each makes its device $D from the SSD vdb and the slow disk vdc, both fresh, and tells
# its own counts of read hits and misses, if it has any. Whatever a cache needs for itself lies on the SSD, too.
DM_META_SECTORS=8192
# zcached's unit of eviction: an SSD of 64 MiB holds too few of the usual 2 MiB to tell which is used least.
UNIT="256 KiB"
D=/dev/vdc SSD=vdb

own_counts() { echo "null null"; }

raw() { :; }

# bcache MODE: the defaults, but that it never takes the SSD of this machine for overloaded, and that its buckets are
# smaller: it wants more than 512 of them.
bcache() {
    modprobe bcache
    make-bcache --block 4k --bucket 64k -C /dev/vdb -B /dev/vdc > /tmp/make 2>&1 || { cat /tmp/make; return 1; }
    udevadm settle
    for each in /dev/vdb /dev/vdc; do
        # The rules of udev may have been faster.
        echo $each > /sys/fs/bcache/register 2> /dev/null || true
    done
    await /dev/bcache0
    await /sys/block/bcache0/bcache/cache
    echo 0 > /sys/block/bcache0/bcache/cache/congested_read_threshold_us
    echo 0 > /sys/block/bcache0/bcache/cache/congested_write_threshold_us
    echo "$1" > /sys/block/bcache0/bcache/cache_mode
    grep -q "\[$1\]" /sys/block/bcache0/bcache/cache_mode
    D=/dev/bcache0
}

# dm_cache MODE FAST: blocks of 32 KiB, the smallest there are. Metadata at the beginning of the SSD.
dm_cache() {
    local fast=${2:-} sectors
    modprobe -a dm-cache dm-cache-smq
    if [ -z "$fast" ]; then
        sectors=$(blockdev --getsz /dev/vdb)
        dmsetup create meta --table "0 $DM_META_SECTORS linear /dev/vdb 0"
        dmsetup create fast --table "0 $((sectors - DM_META_SECTORS)) linear /dev/vdb $DM_META_SECTORS"
        fast=/dev/mapper/fast
    fi
    dd if=/dev/zero of=/dev/mapper/meta bs=4k count=1 oflag=direct status=none
    dmsetup create cached \
        --table "0 $(blockdev --getsz /dev/vdc) cache /dev/mapper/meta $fast /dev/vdc 64 1 $1 smq 0"
    D=/dev/mapper/cached
    own_counts() { dmsetup status cached | awk '{ print $8, $9 }'; }
}

# The same over VDO, which deduplicates and compresses. Its index alone takes more than 2 GiB of disk, so it has another SSD,
# vdd, of which it may fill two slabs of 32 MiB, as much as the others have in all, with twice as much of dm-cache's.
VDO_MIB=2816
dm_cache_vdo() {
    modprobe dm-vdo
    SSD=vdd
    dmsetup create base --table "0 $((VDO_MIB * 2048)) linear /dev/vdd 0"
    vdoformat --uds-memory-size=0.25 --slab-bits=13 --logical-size=128M /dev/mapper/base > /tmp/make 2>&1 ||
        { cat /tmp/make; return 1; }
    dmsetup create vdo --table "0 $((128 * 2048)) vdo V4 /dev/mapper/base $((VDO_MIB * 256)) 4096 32768 16380 \
        deduplication on compression on"
    figure vdo_room_mib "$(dmsetup status vdo | awk '{ print int(($NF - $(NF - 1)) / 256) }')"
    dmsetup create meta --table "0 $DM_META_SECTORS linear /dev/vdb 0"
    dm_cache "$1" /dev/mapper/vdo
}

dm_writecache() {
    modprobe dm-writecache
    dmsetup create cached --table "0 $(blockdev --getsz /dev/vdc) writecache s /dev/vdc /dev/vdb 4096 0"
    D=/dev/mapper/cached
}

# A file system on the SSD, for the filter's file.
nbdkit_cache() {
    local free
    mke2fs -q -t ext4 -O ^has_journal -m 0 /dev/vdb
    mkdir -p /mnt/ssd
    mount -o discard /dev/vdb /mnt/ssd
    free=$(df --output=avail -B1 /mnt/ssd | tail -n 1)
    TMPDIR=/mnt/ssd nbdkit -U /run/nbdkit.sock --threads 16 --filter=cache file /dev/vdc cache=$1 \
        cache-on-read=true cache-min-block-size=8192 cache-max-size=$((free * 9 / 10)) > /tmp/nbdkit.log 2>&1
    nbd-client -unix /run/nbdkit.sock /dev/nbd5 -b 512 > /tmp/nbd-client 2>&1 || { cat /tmp/nbd-client; return 1; }
    D=/dev/nbd5
}

# zcached MODE DEDUP COMPRESSION [COPY [DESTAGE]]
zcached_ublk() {
    mode=$1 configure 'ublk.attach = true' "dedup = $2" "compression = \"$3\"" "ublk.copy = \"${4:-auto}\"" \
        "destage = \"${5:-epoch}\""
    sed -i "s/^max_ram/weu_size = \"$UNIT\"\nmax_ram/" /tmp/zcached.toml
    zcctl format /dev/vdb --weu-size "$UNIT"
    start_daemon
    await /dev/ublkb0
    D=/dev/ublkb0
}

# enter CONTENDER
enter() {
    case $1 in
        raw) raw ;;
        bcache-wt) bcache writethrough ;;
        bcache-wb) bcache writeback ;;
        dm-cache-wt) dm_cache writethrough ;;
        dm-cache-wb) dm_cache writeback ;;
        dm-cache-vdo) dm_cache_vdo writethrough ;;
        dm-writecache) dm_writecache ;;
        nbdkit-cache) nbdkit_cache writethrough ;;
        zcached-d-c) zcached_ublk write-through true lz4 ;;
        zcached-d-nc) zcached_ublk write-through true none ;;
        zcached-nd-c) zcached_ublk write-through false lz4 ;;
        zcached-nd-nc) zcached_ublk write-through false none ;;
        zcached-user-copy) zcached_ublk write-through true lz4 user ;;
        zcached-wb) zcached_ublk write-back true lz4 ;;
        zcached-coalesce) zcached_ublk write-back true lz4 auto coalesce ;;
        *) echo "there is no contender $1"; return 1 ;;
    esac
}
