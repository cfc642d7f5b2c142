# What the scenarios share. vdb is the SSD, vdc the slow disk, vdd a small one; they are the machine's to overwrite.

result() { printf '%s\n' "$1" > /dev/ttyS1; }

# check NAME COMMAND...: runs the command in a shell that stops at the first failure, and reports. One that takes too
# long is ended, after everything that waits was shown. If `only` names some, others are left out.
check() {
    local name=$1 start=$EPOCHREALTIME status seconds running
    shift
    [[ -z $only || ,$only, == *,$name,* ]] || return 0
    ( set -euo pipefail; "$@" ) > /tmp/out 2>&1 &
    running=$!
    ( sleep "${limit:-180}"; echo w > /proc/sysrq-trigger; ps -eo pid,stat,wchan:40,args --no-headers | grep -v '\]$'
      kill -KILL $running ) > /dev/console 2>&1 &
    wait $running
    status=$?
    kill $! 2> /dev/null
    seconds=$(echo "$EPOCHREALTIME $start" | awk '{ printf "%.2f", $1 - $2 }')
    if [ $status -eq 0 ]; then
        result "{\"check\":\"$name\",\"ok\":true,\"seconds\":$seconds}"
    else
        echo "== $name failed ($status):"
        tail -n 60 /tmp/out
        echo "== the daemon:"
        tail -n 30 /tmp/daemon.log
        dmesg | tail -n 6
        result "{\"check\":\"$name\",\"ok\":false,\"seconds\":$seconds}"
    fi
}

# same ONE OTHER WHAT: fails if they differ.
same() { [ "$1" = "$2" ] || { echo "$3: \"$1\" is not \"$2\""; return 1; }; }

# fails COMMAND...: a negated command would not end a shell that stops at failures.
fails() { if "$@"; then echo "it should fail: $*"; return 1; fi; }

# figure NAME NUMBER: something measured.
figure() { result "{\"figure\":\"$1\",\"value\":$2}"; }

# configure [LINE...]: writes the configuration; lines go to the volume, which has the mode that was asked for.
configure() {
    {
        printf '[cache]\npath = "/dev/vdb"\nstate_dir = "/tmp/state"\nmax_ram = "64 MiB"\n'
        # The second thread has the first queue of a device.
        printf 'io_threads = 2\n\n'
        printf '[[volume]]\nname = "hdd"\norigin = "/dev/vdc"\nmode = "%s"\n' "${mode:-write-through}"
        printf '%s\n' "$@"
        printf '\n[nbd]\nlisten = []\nunix = ["/run/nbd.sock"]\n'
        # What a reload adds lies there.
        printf '\n[sandbox]\npaths = ["/tmp"]\nlandlock = "required"\nseccomp = "required"\n'
    } > /tmp/zcached.toml
}

# The daemon's status, whatever its verdict, which the exit status of zcctl tells. Fails if the daemon does not answer.
daemon_status() {
    local code=0
    zcctl status "$@" || code=$?
    [ "$code" -ne 2 ]
}

# Starts the daemon and waits until it answers.
start_daemon() {
    mkdir -p /run/zcached
    setsid zcached --config /tmp/zcached.toml < /dev/null >> /tmp/daemon.log 2>&1 &
    echo $! > /tmp/daemon.pid
    for _ in $(seq 1 600); do
        if daemon_status > /dev/null 2>&1; then return 0; fi
        if ! kill -0 "$(cat /tmp/daemon.pid)" 2> /dev/null; then return 1; fi
        sleep 0.1
    done
    return 1
}

stop_daemon() {
    kill -TERM "$(cat /tmp/daemon.pid)"
    wait_gone
}

wait_gone() {
    for _ in $(seq 1 600); do
        if ! kill -0 "$(cat /tmp/daemon.pid)" 2> /dev/null; then return 0; fi
        sleep 0.1
    done
    return 1
}

# Brings what only the cache has to the slow disk.
settle() { zcctl flush hdd > /dev/null; }

# Waits until a path is there.
await() {
    for _ in $(seq 1 100); do
        if [ -e "$1" ]; then return 0; fi
        sleep 0.1
    done
    echo "$1 does not appear"
    return 1
}

# Sectors discarded on a disk so far.
discarded() { awk '{ print $14 }' "/sys/block/$1/stat"; }

# reported COUNT: waits until so many steps of the load are durable.
reported() {
    for _ in $(seq 1 300); do
        if [ "$(wc -l < /tmp/report)" -ge "$1" ]; then return 0; fi
        sleep 0.1
    done
    echo "the load does not come to $1 steps"
    return 1
}

steps() {
    awk -F '[:,}]' '{ last[$2] = $4 }
        END { for (w = 0; w < 3; w++) printf "%s%s", (w ? "," : ""), (w in last ? last[w] : "-") }' /tmp/report
}
