# Downloads the programs of PostgreSQL into a cache, unless they are there, and prints their folder.
#
# The archives are those of theseus-rs/postgresql-binaries, checked against the SHA-256 published beside them. Only the
# current user may write to the cache, since its programs are run. Those of root may be read by others, since another
# user runs root's servers. An interrupted download leaves nothing that a later one takes for complete.
#
# The arguments: where from, or nothing to download nothing; the cache, if it is not the usual one.
set -eu
version=17.7.0
umask 077
if [ "$(id -u)" = 0 ]; then
    umask 022
    cache=${2:-/var/cache/scoop-postgresql}
else
    cache=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/scoop-postgresql}
fi
[ -z "$1" ] || mkdir -p "$cache"
if [ -z "$(find "$cache" -prune -type d -user "$(id -u)" ! -perm -020 ! -perm -002)" ]; then
    echo "$cache is no folder of this user, or others may write to it" >&2
    exit 1
fi

if [ -n "$1" ] && ! [ -e "$cache/$version" ]; then
    fresh=$(mktemp -d "$cache/unfinished-XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    system=unknown-linux-gnu
    [ -z "$(find /lib -maxdepth 1 -name 'ld-musl-*')" ] || system=unknown-linux-musl
    [ "$(uname)" != Darwin ] || system=apple-darwin
    archive=postgresql-$version-$(uname -m | sed s/arm64/aarch64/)-$system.tar.gz
    cd "$fresh"
    for file in "$archive" "$archive.sha256"; do
        curl --fail --silent --show-error --location --max-time 600 --output "$file" "$1/$version/$file"
    done
    if command -v sha256sum >/dev/null; then sum=sha256sum; else sum='shasum -a 256'; fi
    if [ "$($sum "$archive" | cut -c 1-64)" != "$(cut -c 1-64 "$archive.sha256")" ]; then
        echo "$archive does not have the published SHA-256" >&2
        exit 1
    fi
    mkdir programs
    tar -xzof "$archive" -C programs --strip-components=1
    # Another process may have been faster.
    [ -e "$cache/$version" ] || mv programs "$cache/$version"
fi
ls -d "$cache/$version/bin"
