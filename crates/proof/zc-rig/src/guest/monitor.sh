# The speed of the slow disk, which QEMU calls hdd, and what the machine has left.
# QEMU's monitor on the third port. It greets, which the port may echo to it before it is told not to: 0xff has it forget
# what it heard of that.
open_monitor() {
    stty -F /dev/ttyS2 raw -echo
    exec 7<> /dev/ttyS2
    while read -r -t 1 <&7; do :; done
    printf '\377\n' >&7
    while read -r -t 1 <&7; do :; done
    monitor '"qmp_capabilities"'
}

# monitor COMMAND: as the monitor takes it, and its answer.
monitor() {
    local answer=nothing
    printf '{"execute":%s}\n' "$1" >&7
    while read -r -t 20 answer <&7; do
        case $answer in
            *'"return"'*) return 0 ;;
            *'"error"'*) break ;;
        esac
    done
    echo "the monitor says: $answer"
    return 1
}

# slow IOPS: has QEMU limit the slow disk; 0: not at all.
slow() {
    local others='"bps":0,"bps_rd":0,"bps_wr":0,"iops_rd":0,"iops_wr":0'
    monitor "\"block_set_io_throttle\",\"arguments\":{\"device\":\"hdd\",\"iops\":$1,$others}"
}

# Bytes of memory that the machine could still give.
available() { awk '/MemAvailable/ { print $2 * 1024 }' /proc/meminfo; }
