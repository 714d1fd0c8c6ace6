#!/bin/sh
# Runs a command in the image's root file system without an engine. The C library, Python and Java are this machine's.
# The caller starts it in its own user and mount namespaces.
#
#   inside.sh build|run ROOT USER FOLDER VOLUMES COMMAND...
#
# `build` lets the command write. `run` does what Kubernetes does: it uses the image's USER (uid:gid) and FOLDER, and makes
# everything read-only except /tmp and the volumes. VOLUMES are lines FOLDER=FOLDER_INSIDE.
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
    # Copy the settings of this machine that programs of the image need.
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
        # The kubelet creates missing mount points.
        mkdir -p "$root$place"
        mount --bind "$from" "$root$place"
    fi
done
for top in "$root"/*; do
    case $top in */tmp | */var | */proc | */dev | */sys) continue ;; esac
    if mountpoint -q "$top"; then mount -o remount,bind,ro "$top"; fi
done
mount -o remount,bind,ro "$root"
# SIOCSIFFLAGS brings the loopback interface up. The kernel refuses it if the network is the machine's.
python3 -c 'import fcntl, socket, struct
try:
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14s", b"lo", 0x41, b""))
except PermissionError:
    pass'
exec unshare --user --map-user="${user%:*}" --map-group="${user#*:}" --root="$root" --wd="$folder" "$@"
