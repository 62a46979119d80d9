#!/bin/sh
# Boots systemd as process 1 of namespaces of its own. Called by booted.py, within `unshare`, as root.
#
#   boot.sh ROOT ETC PACKAGE PYTHON SITE
#
# ROOT is an empty folder for the new root, a tmpfs. What it shows of the machine is mounted read-only: /usr, a Python, its
# packages, a copy of shmreplay. Nothing of the old root is left in it, so nothing in there can be removed or changed,
# whatever systemd's own units do at a start; and of these only those below are there at all.
set -eu
[ $$ = 1 ] || exit 1 # these mounts belong into a namespace of our own
root=$1 etc=$2 package=$3 python=$4 site=$5

show() { # FOLDER PLACE: read-only
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
}

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
show /usr /usr
show "$package" /opt/shmreplay
show "$python" /opt/python
show "$site" /opt/site
for link in bin sbin lib lib32 lib64 libx32; do
  [ ! -L "/$link" ] || cp -a "/$link" "$root/$link"
done

mkdir -p "$root/etc" "$root/proc" "$root/sys" "$root/dev" "$root/run" "$root/tmp" "$root/var/lib" "$root/var/log" "$root/root" "$root/old"
ln -s ../run "$root/var/run"
cp /etc/nsswitch.conf /etc/ld.so.cache "$root/etc/"
cp -r "$etc/." "$root/etc/"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
: >"$root/etc/machine-id"

# The units that there are: the skeleton of a start, and the journal.
units=/usr/lib/systemd/system
mount -t tmpfs tmpfs "$root$units"
for unit in basic.target sysinit.target sockets.target multi-user.target shutdown.target slices.target paths.target \
  timers.target local-fs.target umount.target final.target systemd-journald.service systemd-journald.socket \
  systemd-journald-dev-log.socket; do
  cp "$units/$unit" "$root$units/"
done
mkdir "$root$units/multi-user.target.wants"
ln -s ../systemd-journald.service "$root$units/multi-user.target.wants/"

mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777,size=256m tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"

cd "$root"
pivot_root . old
umount -l /old
exec /usr/bin/env -i container=shmreplay PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd \
  --system --unit=multi-user.target --log-target=journal --show-status=no
