#!/bin/sh
# Runs a command in a root file system as the image has it, without an engine: what the image's steps made is in it, the rest
# (C library, Python, Java) is this machine's. To be started in user and mount namespaces of its own.
#
#   inside.sh build|run ROOT USER FOLDER VOLUMES COMMAND...
#
# `build` lets the command write. `run` is what Kubernetes does: the image's USER (uid:gid) and FOLDER, everything read-only but
# /tmp and the volumes. VOLUMES are lines PLACE=PLACE_INSIDE: a folder of this machine, and where the command finds it.
set -eu
mode=$1 root=$2 user=$3 folder=$4 volumes=$5
shift 5

mkdir -p "$root"
mount --bind "$root" "$root"
for top in /*; do
    case $top in /etc | /tmp | /opt | /var | /src | /base | /boot | /lost+found) continue ;; esac
    if [ -L "$top" ]; then
        ln -sfn "$(readlink "$top")" "$root$top"
    elif [ -d "$top" ]; then
        mkdir -p "$root$top"
        mount --rbind "$top" "$root$top"
    fi
done
mkdir -p "$root/etc" "$root/tmp"
mount -t tmpfs tmpfs "$root/tmp"

if [ "$mode" = build ]; then
    # Of this machine's settings, those that programs of the image need.
    for name in /etc/alternatives /etc/java-*-openjdk /etc/ssl; do
        if [ -d "$name" ]; then cp -RP "$name" "$root/etc/" 2>/dev/null || true; fi
    done
    for name in hosts ld.so.cache localtime nsswitch.conf resolv.conf; do
        if [ -f "/etc/$name" ]; then cp -L "/etc/$name" "$root/etc/$name"; fi
    done
    exec unshare --root="$root" "$@"
fi

echo "$volumes" | while IFS='=' read -r from place; do
    if [ -n "$from" ]; then
        # The kubelet makes it where the image has none.
        mkdir -p "$root$place"
        mount --bind "$from" "$root$place"
    fi
done
for top in "$root"/*; do
    case $top in */tmp | */var | */proc | */dev | */sys) continue ;; esac
    if mountpoint -q "$top"; then mount -o remount,bind,ro "$top"; fi
done
mount -o remount,bind,ro "$root"
# SIOCSIFFLAGS, up and running: without a network there is the loopback at least. Refused where the network is the machine's.
python3 -c 'import fcntl, socket, struct
try:
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14s", b"lo", 0x41, b""))
except PermissionError:
    pass'
exec unshare --user --map-user="${user%:*}" --map-group="${user#*:}" --root="$root" --wd="$folder" "$@"
