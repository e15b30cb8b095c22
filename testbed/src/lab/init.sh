#!/bin/busybox sh
# The first process of a guest: modules, the host's files, the network; then the agent.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for word in $(cat /proc/cmdline); do
    case $word in lab=*) number=${word#lab=} ;; mtu=*) mtu=${word#mtu=} ;; esac
done
for module in /modules/*; do
    insmod "$module" || echo "lab: cannot load $module"
done
# The host's files do not change while a guest runs, so they may be kept in memory.
share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $share,cache=loose,ro host /host || exec sh
for folder in tmp run root var/tmp; do
    mount -t tmpfs tmpfs /host/$folder
done
mkdir /host/run/lab
mount -t 9p -o $share,cache=none mailbox /host/run/lab || exec sh
mount -t proc proc /host/proc
mount -t sysfs sys /host/sys
mount -t devtmpfs dev /host/dev
mkdir -p /host/dev/shm /host/dev/pts
ln -s /proc/self/fd /host/dev/fd
mount -t tmpfs tmpfs /host/dev/shm
mount -t devpts devpts /host/dev/pts
ulimit -l unlimited
ulimit -n 65536
hostname "guest$number"
ip link set lo up
# Addresses are usable at once. There must be a link-local one: without it the kernel sends no neighbour solicitation
# for a queue pair that is being connected.
echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set eth0 mtu "$mtu" up
ip addr add "10.77.0.$number/24" dev eth0
ip addr add "fd77::$number/64" dev eth0
# While a neighbour is not known yet, a burst of datagrams to it is mostly dropped.
ping -q -c 1 -W 2 10.77.0.254 > /dev/null
ping -q -c 1 -W 2 fd77::254 > /dev/null
cp /agent /host/run/agent
exec chroot /host /usr/bin/env LAB="$number" bash /run/agent
