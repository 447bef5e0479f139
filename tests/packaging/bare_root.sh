#!/bin/sh
# Runs a script in a root like this machine's, in which the folders that are named are empty. STATE/clone is /clone there, where
# the script runs. There is no network, and what the script changes elsewhere is gone when it ends.
#
#   unshare --mount --pid --net --ipc --uts --fork --kill-child sh bare_root.sh STATE EMPTY... -- SCRIPT
set -eu
state=$1 root=$1/scratch/root
shift

ip link set lo up
# A file system of its own: the changes over an overlay cannot lie in an overlay.
mkdir "$state/scratch"
mount -t tmpfs scratch "$state/scratch"
mkdir "$state/scratch/changes" "$state/scratch/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$state/scratch/changes,workdir=$state/scratch/work" root "$root"

mkdir "$root/clone"
mount --bind "$state/clone" "$root/clone"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
  [ ! -d "$root$1" ] || mount -t tmpfs -o ro empty "$root$1" # it may be inside the one before
  shift
done
shift
# Images for containers leave pages and documents of packages out. The list of all manual pages is not made anew.
rm -f "$root"/etc/dpkg/dpkg.cfg.d/* "$root/var/lib/man-db/auto-update"

exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
  sh -eux -c "cd /clone; $1"
