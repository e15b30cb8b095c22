#!/bin/sh
# Runs a program that sees nonic's devices where Linux shows RDMA devices: /sys/class/infiniband.
#
# usage: unshare --mount sysfs.sh PROGRAM [ARGUMENT...]
#
# rdma-core's tests of the connection manager look there for the network interface of their device, and nowhere else.
# Nothing of the system changes: the folder exists in the mount namespace of the program alone. It holds what the tests
# ask for, roce_<interface>/device/net/<interface> (and iwarp_<interface>/…), and is no attempt at the rest.
set -eu

# A folder that every system has; it is covered for a moment, and for nobody else.
view=/mnt
mount -t tmpfs nonic "$view"
for class in /sys/class/*; do
    name=${class##*/}
    [ "$name" = infiniband ] && continue
    mkdir "$view/$name"
    mount --bind "$class" "$view/$name"
done
# /sys may show the interfaces of another network namespace than ours.
for name in $(ip -oneline link show | cut -d: -f2 | cut -d@ -f1); do
    mkdir -p "$view/infiniband/roce_$name/device/net/$name" "$view/infiniband/iwarp_$name/device/net/$name"
done
mount --rbind "$view" /sys/class
umount --recursive "$view"
exec "$@"
