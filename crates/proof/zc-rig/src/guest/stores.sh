# One store on one disk, vdb. Words: contender, part: which loads, iops: of the disk when it is slow, span: seconds of a
# load. vdc is an SSD for who wants one. Data are files of this machine, and images of its root disk.
. /payload/monitor.sh
contender=$(word contender) part=$(word part) iops=$(word iops) span=$(word span)
S=/mnt/store
IMAGE_RUNS=2048 # of 64 KiB: an image has 128 MiB
IMAGES=4
# Runs of a thousand that change from one image, or generation, to the next (Nitro, section 5).
CHANGED=23
SERIES_MIB=64
GENERATIONS=100
KEPT=12

# Each contender mounts an empty file system on $S, tells the bytes that it uses, and takes and deletes a snapshot of
# the series, if it can.
fixed=0
snapshot() { :; }
forget() { :; }
settled() { sync; }

ext4_on() {
    mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 -m 0 "$1"
    mkdir -p $S
    mount -o discard "$1" $S
}

file_system_used() { df --output=used -B1 $S | tail -n 1; }

ext4() {
    ext4_on /dev/vdb
    used() { file_system_used; }
}

btrfs_with() {
    modprobe btrfs
    mkfs.btrfs -q /dev/vdb
    mkdir -p $S
    mount ${1:+-o "compress-force=$1"} /dev/vdb $S
    btrfs -q subvolume create $S/series
    used() { btrfs filesystem usage -b $S | awk '/^ *Used:/ { print $2; exit }'; }
    snapshot() { btrfs -q subvolume snapshot -r $S/series "$S/series.$1"; }
    forget() { btrfs -q subvolume delete "$S/series.$1"; }
    settled() { btrfs subvolume sync $S; sync; }
}

# Its index of duplicates takes most of 2 GiB before anything is stored.
vdo() {
    modprobe dm-vdo
    vdoformat --uds-memory-size=0.25 --slab-bits=13 --logical-size=3G /dev/vdb > /tmp/make 2>&1 || { cat /tmp/make; return 1; }
    dmsetup create vdo --table "0 $((3 << 21)) vdo V4 /dev/vdb $(($(blockdev --getsz /dev/vdb) / 8)) 4096 32768 16380 \
        deduplication on compression on"
    vdo_used() { dmsetup status vdo | awk '{ printf "%.0f", $(NF - 1) * 4096 }'; }
    fixed=$(vdo_used)
    ext4_on /dev/mapper/vdo
    used() { echo $(($(vdo_used) - fixed)); }
}

# zcached CODEC GATHER
zcached_with() {
    zcctl store create /dev/vdb
    zcctl store create-volume /dev/vdb hdd 3G --codec "$1"
    zcctl format /dev/vdc
    {
        printf '[cache]\npath = "/dev/vdc"\nstate_dir = "/tmp/state"\nmax_ram = "64 MiB"\n\n'
        printf '[[store]]\nname = "tank"\npath = "/dev/vdb"\ngather = %s\n\n' "$2"
        printf '[[volume]]\nname = "hdd"\norigin = "store:tank/hdd"\nmode = "pass-through"\nublk.attach = true\n\n'
        printf '[nbd]\nlisten = []\nunix = ["/run/nbd.sock"]\n'
    } > /tmp/zcached.toml
    start_daemon
    await /dev/ublkb0
    ext4_on /dev/ublkb0
    used() { zcctl store status tank --json | jq '.stored_bytes + .map_bytes'; }
    snapshot() { zcctl store snapshot tank hdd "hdd@$1" > /dev/null; }
    forget() { zcctl store delete-snapshot tank "hdd@$1" --yes > /dev/null; }
}

enter() {
    case $1 in
        ext4) ext4 ;;
        btrfs) btrfs_with '' ;;
        btrfs-lzo) btrfs_with lzo ;;
        btrfs-zstd) btrfs_with zstd:1 ;;
        vdo) vdo ;;
        zcached-lz4) zcached_with lz4 false ;;
        zcached-zstd) zcached_with zstd false ;;
        zcached-gather) zcached_with lz4 true ;;
        *) echo "there is no contender $1"; return 1 ;;
    esac
}

# sample NAME KEY VALUE [KEY VALUE...]
sample() {
    local text="{\"sample\":\"$1\""
    shift
    while [ $# -gt 0 ]; do
        text="$text,\"$1\":$2"
        shift 2
    done
    result "$text}"
}

# stored NAME SHOWN BEGAN: what was written since, and what the store uses now.
stored() {
    settled
    local took
    took=$(echo "$EPOCHREALTIME $3" | awk '{ printf "%.2f", $1 - $2 }')
    sample "$1" shown_bytes "$2" used_bytes "$(used)" seconds "$took"
}

files() {
    local began=$EPOCHREALTIME before
    mkdir $S/files
    cp -a /usr/bin /usr/lib /usr/share $S/files/
    stored files "$(du -s --block-size=1 --apparent-size $S/files | cut -f1)" "$began"
}

# Images of the root disk, each with some runs of the one before replaced by what lies further on.
images() {
    local began=$EPOCHREALTIME number run
    mkdir $S/images
    for number in $(seq $IMAGES); do
        if [ "$number" = 1 ]; then
            dd if=/dev/vda of=$S/images/1 bs=64k count=$IMAGE_RUNS status=none
        else
            dd if=$S/images/$((number - 1)) of="$S/images/$number" bs=1M status=none
            for run in $(seq $((IMAGE_RUNS * CHANGED / 1000))); do
                dd if=/dev/vda of="$S/images/$number" bs=64k count=1 conv=notrunc status=none \
                    skip=$((IMAGE_RUNS * number + run)) seek=$(((run * 7919 + number * 104729) % IMAGE_RUNS))
            done
        fi
        sync
    done
    stored images $((IMAGES * IMAGE_RUNS * 65536)) "$began"
}

# load NAME FIO...: data 2:1 compressible, none twice.
load() {
    local name=$1
    shift
    fio --name=load --direct=1 --ioengine=libaio --randrepeat=1 --refill_buffers --buffer_compress_percentage=50 \
        --buffer_compress_chunk=512 --output-format=json --output="/tmp/fio.$name" "$@"
    [ "$(jq '.jobs[0].error' "/tmp/fio.$name")" = 0 ]
}

# timed NAME SIDE FIO...: a load on the slow disk.
timed() {
    local name=$1 side=$2
    shift 2
    load "$name" --filename=$S/load --size=128m --time_based --runtime="$span" "$@"
    result "$(jq -c --arg name "$name" --arg side "$side" '.jobs[0][$side] |
        {sample: $name, per_second: .iops, bytes_per_s: .bw_bytes, p99_ms: ((.clat_ns.percentile["99.000000"] // 0) / 1e6)}' \
        "/tmp/fio.$name")"
}

loads() {
    load fill --filename=$S/load --size=128m --rw=write --bs=1m --end_fsync=1
    slow "$iops"
    timed sequential-read read --rw=read --bs=512k --iodepth=4
    timed random-read read --rw=randread --bs=8k --iodepth=16
    timed random-write write --rw=randwrite --bs=8k --iodepth=16
    timed sequential-write write --rw=write --bs=512k --iodepth=4
    slow 0
    rm $S/load
    settled
}

# From front to back, on the slow disk.
read_series() {
    local began
    echo 3 > /proc/sys/vm/drop_caches
    slow "$iops"
    began=$EPOCHREALTIME
    dd if=$S/series/data of=/dev/null bs=512k iflag=direct status=none
    sample "$1" seconds "$(echo "$EPOCHREALTIME $began" | awk '{ printf "%.2f", $1 - $2 }')" bytes $((SERIES_MIB << 20))
    slow 0
}

series() {
    local number began
    mkdir -p $S/series
    load first --filename=$S/series/data --size=${SERIES_MIB}m --rw=write --bs=64k --end_fsync=1
    settled
    read_series generation-1
    began=$EPOCHREALTIME
    before=$(used)
    for number in $(seq $GENERATIONS); do
        load next --filename=$S/series/data --size=${SERIES_MIB}m --rw=randwrite --bs=64k --randseed="$number" \
            --number_ios=$((SERIES_MIB * 16 * CHANGED / 1000)) --end_fsync=1
        sync
        snapshot "$number"
        [ "$number" -le $KEPT ] || forget $((number - KEPT))
    done
    settled
    # Who cleans or gathers when nothing is asked for is to have the time.
    sleep 60
    sample series seconds "$(echo "$EPOCHREALTIME $began" | awk '{ printf "%.2f", $1 - $2 }')" \
        added_bytes $(($(used) - before))
    read_series generation-100
}

# Pages of 4 KiB that the disk read and wrote.
pages() { awk '{ print $3 / 8, $7 / 8 }' /sys/block/vdb/stat; }

# Transactions of ten reads and six writes of 4 KiB, and a flush, on a file whose data compress by so many per cent. btrfs
# compresses only what comes through the page cache, so all do it that way, without the pages of the fill.
transactions() {
    local percent before after
    for percent in 25 50 75; do
        load fill --filename=$S/data --size=256m --rw=write --bs=1m --end_fsync=1 --buffer_compress_percentage=$percent --direct=0
        settled
        echo 3 > /proc/sys/vm/drop_caches
        before=$(pages)
        load transactions --filename=$S/data --size=256m --rw=randrw --rwmixread=62 --bs=4k --ioengine=psync --direct=0 --fsync=6 \
            --number_ios=16000 --random_distribution=zipf:0.9 --buffer_compress_percentage=$percent
        settled
        after=$(pages)
        result "$(jq -c --arg name "compressed-by-$percent" --arg pages "$before $after" '
            ($pages | split(" ") | map(tonumber)) as [$r0, $w0, $r1, $w1] | .jobs[0] |
            {sample: $name, transactions: (.write.total_ios / 6), pages_read: ($r1 - $r0), pages_written: ($w1 - $w0)}' \
            /tmp/fio.transactions)"
        rm $S/data
        settled
    done
}

store() {
    sample fixed bytes "$fixed"
    files
    images
    loads
    series
}

work() {
    local free
    open_monitor
    slow 0
    free=$(available)
    enter "$contender"
    case $part in
        store) store ;;
        transactions) transactions ;;
        *) echo "there is no part $part"; return 1 ;;
    esac
    sample memory bytes $((free - $(available)))
}

limit=3000
check work work
