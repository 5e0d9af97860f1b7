# Makes the data, runs the server, and stops it as soon as the owner has ended, however that ended.
#
# Standard input is a pipe whose other end only the owner has: the kernel closes it when the owner ends, even by
# SIGKILL. Until then the owner sends the names of signals for the server. On standard output the owner reads `ready`
# with the process of the server, or else why it did not start.
#
# The arguments: the folder of the data, the folder of the socket, which is removed if the owner has ended, the programs
# of PostgreSQL, how to begin, the settings of the server. It begins with `new` data if there are none, `again` with
# those that are there, or with those of the server that listens in the given folder.

# Only the pipe decides, not the signals that end processes at a terminal or in a service.
trap '' HUP INT PIPE QUIT TERM
umask 077
exec 3<&0 </dev/null 2>&1
folder=$1 socket=$2 programs=$3 begin=$4
shift 4
cd "$folder" || exit
[ "$folder" = "$socket" ] || chmod 700 . || exit
[ "$begin" = again ] || [ -e data/postmaster.pid ] || : >server.log
exec 2>>server.log

if [ ! -e data/PG_VERSION ]; then
    # Whoever makes the data in the same folder at the same time has another name.
    fresh=unfinished.$$
    if [ "$begin" = new ]; then
        # Not every machine has the first locale.
        for locale in C.UTF-8 C; do
            "$programs/initdb" --username=postgres --auth=trust --encoding=UTF8 --locale="$locale" --no-sync \
                --no-instructions -D "$fresh" && break
        done
    else
        "$programs/pg_basebackup" --username=postgres --host="$begin" --port=5432 --no-password --checkpoint=fast \
            --wal-method=stream --write-recovery-conf --no-sync -D "$fresh"
    fi >&2 3<&-
    mv "$fresh" data
fi

sockets=$socket
# In the folder of the data only if its path is short enough. Quotes protect a comma in the list.
[ "$folder" = "$socket" ] || sockets="$socket,\"$(printf %s "$folder" | sed 's/"/""/g')\""
# The settings of the caller come before those that connecting depends on, which take precedence.
set -- -c listen_addresses= -c max_connections=200 "$@" -c port=5432 -c "unix_socket_directories=$sockets"
[ "$folder" != "$socket" ] || set -- -c fsync=off -c full_page_writes=off "$@"
"$programs/postgres" -D "$PWD/data" "$@" >&2 3<&- &
server=$!

{
    trap 'exit' USR1
    attempts=6000
    # The first line has the process, the eighth the status.
    until { read -r process && for line in 2 3 4 5 6 7 8; do read -r status; done; } 2>/dev/null <data/postmaster.pid &&
        [ "$process $status" = "$server ready" ]; do
        attempts=$((attempts - 1))
        [ "$attempts" -gt 0 ] || kill -s QUIT "$server"
        sleep 0.01
    done
    echo "ready $server"
    while read -r signal; do kill -s "$signal" "$server"; done
    trap '' USR1
    while kill -s INT "$server"; do sleep 0.1; done
    rm -rf "$socket"
} <&3 3<&- &
listener=$!

exec 3<&-
wait "$server" || tail -n 20 server.log | tail -c 4000
kill -s USR1 "$listener"
