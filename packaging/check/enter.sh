#!/bin/sh
# enter.sh ROOT USER COMMAND...: runs a command in a root folder as an unprivileged container would: with a network of its
# own that has only loopback, a small /dev, a read-only /sys, and, unless the user is root, no capability and no way to one.
# Everything ends with the command; nothing of this is seen outside.
set -eu
exec unshare --mount --net --pid --fork --kill-child sh -euc '
root=$1 user=$2
shift 2
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 dev "$root/dev"
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${node%:*}" c 1 "${node#*:}"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ip link set lo up
export HOME=/tmp LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ "$user" != root ]; then
    exec chroot "$root" setpriv --reuid "$user" --regid nogroup --clear-groups --no-new-privs \
        --inh-caps=-all --bounding-set=-all "$@"
fi
exec chroot "$root" "$@"' sh "$@"
