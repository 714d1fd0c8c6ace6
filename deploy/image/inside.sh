#!/bin/sh
# Runs a command in a root file system as the image has it, without an engine: the bridge's folder is the image's own, the rest
# (C library, Python, Java) is this machine's. To be started in user and mount namespaces of its own.
#
#   inside.sh build|run ROOT SOURCE COMMAND...
#
# `build` lets the command write; `run` is what Kubernetes does: user 10001, everything read-only but /tmp and the
# checkpoint's folder, and no network but the loopback (if the network namespace is of its own too).
set -eu
mode=$1 root=$2 source=$3
shift 3

mkdir -p "$root"
mount --bind "$root" "$root"
for top in /*; do
    case $top in /tmp | /opt | /var | /src | /boot | /lost+found) continue ;; esac
    if [ -L "$top" ]; then
        ln -sfn "$(readlink "$top")" "$root$top"
    elif [ -d "$top" ]; then
        mkdir -p "$root$top"
        mount --rbind "$top" "$root$top"
    fi
done
mkdir -p "$root/tmp" "$root/src" "$root/opt" "$root/var/lib/scylla-cdc-bridge"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$source" "$root/src"

if [ "$mode" = build ]; then
    exec unshare --root="$root" --wd=/src "$@"
fi

# The image has this user; Spark asks for its name.
echo 'bridge:x:10001:10001::/tmp:/usr/sbin/nologin' >"$root/tmp/passwd"
mount --bind "$root/tmp/passwd" "$root/etc/passwd"
mount -t tmpfs tmpfs "$root/var/lib/scylla-cdc-bridge"
for top in "$root"/*; do
    case $top in */tmp | */var | */proc | */dev | */sys) continue ;; esac
    if mountpoint -q "$top"; then mount -o remount,bind,ro "$top"; fi
done
mount -o remount,bind,ro "$root"
# SIOCSIFFLAGS: up and running.
python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14s", b"lo", 0x41, b""))'
exec unshare --user --map-user=10001 --map-group=10001 --root="$root" --wd=/tmp "$@"
