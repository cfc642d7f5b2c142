# One contender under one workload. Words: contender, workload, iops of the slow disk, span: seconds of a measurement, warm:
# how many hundredths of the usual number of requests fill the cache beforehand, when the slow disk is not slow.
. /payload/contenders.sh
. /payload/monitor.sh
contender=$(word contender) workload=$(word workload) iops=$(word iops) span=$(word span) warm=$(word warm)
cache_mib=$(($(blockdev --getsz /dev/vdb) / 2048))
# The working set of most workloads; a scan reads what lies behind it.
SET_MIB=$((8 * cache_mib))
# Whoever takes longer to fill is measured with what it has then.
FILL_SECONDS=300

# Bytes written to the SSD; reads and writes of the slow disk; what the cache itself counted.
counts() {
    echo "$(awk '{ print $7 * 512 }' "/sys/block/$SSD/stat") $(awk '{ print $1, $5 }' /sys/block/vdc/stat) $(own_counts)"
}

# load SEED FIO...: 8 KiB, 16 at a time, unless the options say otherwise; data 2:1 compressible, every other one twice.
load() {
    local seed=$1
    shift
    fio --name=load --filename="$D" --direct=1 --ioengine=libaio --iodepth=16 --bs=8k --randrepeat=0 --randseed="$seed" \
        --norandommap --refill_buffers --buffer_compress_percentage=50 --buffer_compress_chunk=512 \
        --dedupe_percentage=50 --output-format=json --output="/tmp/fio.$seed" "$@"
    [ "$(jq '.jobs[0].error' "/tmp/fio.$seed")" = 0 ]
}

# report NAME SEED COUNTS: what came of a load, since the counts were taken.
report() {
    local after free
    after=$(counts) free=$(available)
    result "$(jq -c --arg name "$1" --argjson ram $((free_before - free)) \
        --argjson before "[${3// /,}]" --argjson after "[${after// /,}]" '
        def side: {
            requests: .total_ios, bytes: .io_bytes, per_second: .iops, mean_ms: (.lat_ns.mean / 1e6),
            p50_ms: ((.clat_ns.percentile["50.000000"] // 0) / 1e6),
            p99_ms: ((.clat_ns.percentile["99.000000"] // 0) / 1e6)
        };
        def flush: {
            requests: (.total_ios // 0), bytes: 0, per_second: 0, mean_ms: ((.lat_ns.mean // 0) / 1e6),
            p50_ms: ((.lat_ns.percentile["50.000000"] // 0) / 1e6),
            p99_ms: ((.lat_ns.percentile["99.000000"] // 0) / 1e6)
        };
        def since(i): if $before[i] == null or $after[i] == null then null else $after[i] - $before[i] end;
        {
            sample: $name, seconds: (.jobs[0].job_runtime / 1000), read: (.jobs[0].read | side),
            write: (.jobs[0].write | side), flush: (.jobs[0].sync | flush), ssd_written_bytes: since(0), origin_reads: since(1),
            origin_writes: since(2), own_hits: since(3), own_misses: since(4), ram_bytes: $ram
        }' "/tmp/fio.$2")"
}

# measure NAME SEED FIO...
measure() {
    local name=$1 seed=$2 before
    shift 2
    before=$(counts)
    load "$seed" "$@"
    report "$name" "$seed" "$before"
}

# Seconds between filling and measuring. Who writes late is to have begun with it.
SETTLE=5
[ "$workload" != mix ] || SETTLE=40

# The cache fills while the slow disk is fast, then everything is as slow as it is for a while, then it counts.
# filled REQUESTS FIO...
filled() {
    local requests=$(($1 * warm / 100))
    shift
    slow 0
    measure warm 1 --io_size=1000g --number_ios=$requests --runtime=$FILL_SECONDS "$@"
    slow "$iops"
    load 2 --time_based --runtime=$SETTLE "$@"
    measure run 3 --time_based --runtime="$span" "$@"
}

ZIPF=(--random_distribution=zipf:0.9:0.5)

# A hot set of half the cache is read at random; then something four times the cache is read once from end to end
# meanwhile; then the hot set alone again.
scanned() {
    local hot=(--rw=randread --size=$((cache_mib / 2))m) scan
    slow 0
    measure warm 1 --io_size=1000g --number_ios=$((cache_mib * 64 * 5)) "${hot[@]}"
    slow "$iops"
    measure before 2 --time_based --runtime="$span" "${hot[@]}"
    load 9 --rw=read --bs=128k --iodepth=2 --offset=${SET_MIB}m --size=$((4 * cache_mib))m &
    scan=$!
    measure during 4 --time_based --runtime=20 "${hot[@]}"
    wait $scan
    measure run 5 --time_based --runtime=5 "${hot[@]}"
}

work() {
    open_monitor
    slow 0
    free_before=$(available)
    enter "$contender"
    case $workload in
        # Until the share of hits stays the same, which takes longer with what can be reduced, as more of it is cached.
        zipf | clones) filled 400000 --rw=randread --size=${SET_MIB}m "${ZIPF[@]}" ;;
        unique) filled 80000 --rw=randread --size=${SET_MIB}m "${ZIPF[@]}" ;;
        mix) filled 160000 --rw=randrw --rwmixread=70 --size=${SET_MIB}m "${ZIPF[@]}" ;;
        fsync) filled 4000 --rw=randwrite --bs=4k --iodepth=1 --fsync=1 --size=${SET_MIB}m "${ZIPF[@]}" ;;
        scan) scanned ;;
        fit-*) filled $((cache_mib * 128 * ${workload#fit-} / 100 * 5)) --rw=randread \
            --size=$((cache_mib * ${workload#fit-} / 100))m ;;
        *) echo "there is no workload $workload"; return 1 ;;
    esac
}

limit=$((600 + 6 * warm))
check work work
